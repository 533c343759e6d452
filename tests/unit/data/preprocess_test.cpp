#include "data/preprocess/preprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <set>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "data/corpus/indexed_dataset.h"
#include "data/preprocess/merge_corpora.h"
#include "data/preprocess/preprocess_journal.h"
#include "packing.h"
#include "support/errors.h"
#include "support/sampled.h"
#include "support/sanitizers.h"
#include "support/temp_folder.h"
#include "text/files/byte_tokenizer.h"

namespace piton {
namespace {

using ::testing::HasSubstr;
using Texts = std::vector<std::string>;

SilentLog silent_log;
SilentProgress silent_progress;

PreprocessReport run(PreprocessOptions options, CheckpointRule rule = {}) {
  options.overwrite = true;  // most tests write to one prefix again and again
  return preprocess(options, ByteTokenizer(), silent_log, silent_progress, rule);
}

std::string error_of(const PreprocessOptions& options, Fault fault) {
  try {
    run(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), fault) << error.what();
    return error.what();
  }
  return "";
}

// One text a document, its sequences joined by "|".
Texts texts_of(const std::string& prefix) {
  const auto corpus = IndexedDataset::open(prefix);
  Texts texts;
  for (std::int64_t d = 0; d < corpus.documents(); ++d) {
    std::string text;
    for (auto s = corpus.document_start(d); s < corpus.document_start(d + 1); ++s) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(corpus.length(s)));
      corpus.read(s, 0, ids);
      if (s > corpus.document_start(d)) text += '|';
      for (const std::int32_t id : ids)
        text += id < 256 ? std::string(1, static_cast<char>(id)) : "<eod>";
    }
    texts.push_back(text);
  }
  return texts;
}

std::string bytes_of_corpus(const std::string& prefix) {
  return read_text_file(prefix + ".bin") + read_text_file(prefix + ".idx");
}

std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

const Texts kTexts = {"First line.", "\"Quoted\", and a comma",
                      "\xE7\xBA\xA2\xE6\xA5\xBC\xE6\xA2\xA6 \xF0\x9F\x98\x80", "with\ttab", "last"};

std::string as_jsonl(const Texts& texts, const std::string& key = "text") {
  std::string out;
  for (const auto& text : texts)
    out += nlohmann::json{{"id", 1}, {key, text}, {"more", {1, 2}}}.dump() + "\n";
  return out;
}

std::string as_csv(const Texts& texts) {
  std::string out = "id,text,more\r\n";
  for (const auto& text : texts) {
    out += "1,\"";
    for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    out += "\",\"x, y\"\r\n";
  }
  return out;
}

std::string format_of(const std::string& ending, const Texts& texts) {
  if (ending == ".txt") {
    std::string out;
    for (const auto& text : texts) out += text + "\n";
    return out;
  }
  if (ending == ".jsonl") return as_jsonl(texts);
  if (ending == ".csv") return as_csv(texts);
  nlohmann::json list = nlohmann::json::array();
  for (const auto& text : texts) list.push_back({{"text", text}});
  return list.dump(ending == ".json" ? 2 : -1);
}

TEST(Preprocess, ReadsEveryFormatPlainAndPackedAlike) {
  TempFolder folder;
  for (const std::string ending : {".txt", ".jsonl", ".csv", ".json", "-flat.json"}) {
    for (const std::string pack : {"", ".gz", ".zst", ".bz2", ".xz"}) {
      const std::string file = folder / ("x" + ending + pack);
      // Two members one after another are one stream; a json array is not cut so.
      const std::string text = format_of(ending == "-flat.json" ? ".flat" : ending, kTexts);
      const std::size_t half = text.size() / 2;
      put_file(file, packed(pack, text.substr(0, half)) + packed(pack, text.substr(half)));
      PreprocessOptions options;
      options.input = {file};
      options.sample_by = SampleBy::kLine;
      options.append_eod = true;
      options.output_prefix = folder / ("out" + ending + pack);
      const auto report = run(options);
      EXPECT_EQ(report.documents, 5);
      Texts wanted = kTexts;
      for (auto& one : wanted) one += "<eod>";
      EXPECT_EQ(texts_of(options.output_prefix + "_text_document"), wanted) << ending << pack;
      for (const auto& name : files_in(folder.path()))
        EXPECT_EQ(name.find("partial"), std::string::npos) << name;
    }
  }
}

TEST(Preprocess, FilesInAFolderAreReadInTheOrderOfTheirNames) {
  TempFolder folder;
  std::filesystem::create_directories(folder.path() / "in/b");
  put_file(folder / "in/b/2.jsonl", as_jsonl({"two"}));
  put_file(folder / "in/a.jsonl.gz", packed(".gz", as_jsonl({"one"})));
  put_file(folder / "in/README.md", "not data");
  PreprocessOptions options;
  options.input = {folder / "in"};
  options.output_prefix = folder / "out";
  run(options);
  EXPECT_EQ(texts_of(folder / "out_text_document"), (Texts{"one", "two"}));
  options.input = {folder / "in/*.gz", folder / "in/b/2.jsonl"};
  run(options);
  EXPECT_EQ(texts_of(folder / "out_text_document"), (Texts{"one", "two"}));
  put_file(folder / "in/c.csv", "text\nthree\n");
  options.input = {folder / "in"};
  EXPECT_THAT(error_of(options, Fault::kUsage),
              HasSubstr("the folder mixes formats: 1 csv, 2 jsonl"));
  options.input = {folder / "no*"};
  EXPECT_THAT(error_of(options, Fault::kUsage), HasSubstr("does not exist and matches no file"));
}

TEST(Preprocess, SeveralKeysMappedKeysAndListsOfSentences) {
  TempFolder folder;
  put_file(folder / "x.jsonl", R"({"title": "A", "content": ["one.", "", "two."]})"
                               "\n"
                               R"({"content": "", "title": "B"})"
                               "\n\n");
  PreprocessOptions options;
  options.input = {folder / "x.jsonl"};
  options.json_keys = {"text", "title"};
  options.map_keys = R"({"text": "content"})";
  options.append_eod = true;
  options.output_prefix = folder / "out";
  run(options);
  EXPECT_EQ(texts_of(folder / "out_text_document"), (Texts{"one.|two.<eod>", ""}));
  EXPECT_EQ(texts_of(folder / "out_title_document"), (Texts{"A<eod>", "B<eod>"}));
}

TEST(Preprocess, SplitsSentences) {
  TempFolder folder;
  put_file(folder / "x.jsonl", as_jsonl({"It rained. We stayed in! Did you?", "One."}));
  PreprocessOptions options;
  options.input = {folder / "x.jsonl"};
  options.split_sentences = true;
  options.output_prefix = folder / "my-t5";
  run(options);
  EXPECT_EQ(texts_of(folder / "my-t5_text_sentence"),
            (Texts{"It rained.|We stayed in!|Did you?", "One."}));
  options.keep_newlines = true;
  run(options);
  EXPECT_EQ(texts_of(folder / "my-t5_text_sentence"),
            (Texts{"It rained. |We stayed in! |Did you?", "One."}));
}

TEST(Preprocess, ParagraphsAndWholeFiles) {
  TempFolder folder;
  put_file(folder / "x.txt", "\n\none\nmore\n\n\n\ntwo\n");
  PreprocessOptions options;
  options.input = {folder / "x.txt"};
  options.output_prefix = folder / "out";
  options.sample_by = SampleBy::kParagraph;
  run(options);
  EXPECT_EQ(texts_of(folder / "out_text_document"), (Texts{"one\nmore", "two"}));
  options.sample_by = SampleBy::kDocument;
  run(options);
  EXPECT_EQ(texts_of(folder / "out_text_document"), (Texts{"\n\none\nmore\n\n\n\ntwo\n"}));
}

// About 2 MB in lines of very different lengths.
std::string long_input() {
  std::mt19937 random(7);
  std::string out;
  for (int i = 0; i < 3000; ++i) {
    std::string text(random() % (i % 100 == 0 ? 40000 : 900), 'a');
    for (char& c : text) c = static_cast<char>(' ' + random() % 90);
    out += nlohmann::json{{"text", text}}.dump() + "\n";
    if (i % 7 == 0) out += nlohmann::json{{"text", "the same again"}}.dump() + "\n";
  }
  return out;
}

TEST(Preprocess, OutputDoesNotDependOnTheNumberOfWorkers) {
  TempFolder folder;
  put_file(folder / "x.jsonl.zst", packed(".zst", long_input()));
  PreprocessOptions options;
  options.input = {folder / "x.jsonl.zst"};
  options.append_eod = true;
  std::string reference;
  for (const int workers : {1, 2, 8}) {
    for (const bool unique : {true, false}) {
      options.workers = workers;
      options.remove_duplicates = unique;
      options.output_prefix = folder / "out";
      const auto report = run(options);
      EXPECT_EQ(report.documents + report.duplicates, 3000 + 429);
      EXPECT_EQ(report.duplicates > 400, unique);
    }
    const std::string bytes = bytes_of_corpus(folder / "out_text_document");
    if (reference.empty()) reference = bytes;
    EXPECT_TRUE(bytes == reference) << workers;
  }
}

TEST(Preprocess, KilledAtRandomMomentsAndRestartedGivesTheSameBytes) {
  if (has_thread_sanitizer()) GTEST_SKIP() << "forked children with threads are killed";
  TempFolder folder;
  put_file(folder / "a.jsonl", long_input());
  put_file(folder / "b.jsonl.gz", packed(".gz", long_input()));
  PreprocessOptions options;
  options.input = {folder / "a.jsonl", folder / "b.jsonl.gz"};
  options.workers = 2;
  options.remove_duplicates = true;
  options.output_prefix = folder / "whole";
  run(options);
  const std::string reference = bytes_of_corpus(folder / "whole_text_document");

  options.output_prefix = folder / "killed/out";
  std::mt19937 random(11);
  int kills = 0, resumptions = 0;
  const int attempts = test::nightly() ? 17 : 8;  // three kills in each at least
  // On a quick machine many a run ends before its kill, or is killed before there is something to
  // resume from: more series make up for it.
  const auto enough = [&] { return kills >= 3 * attempts && resumptions > 0; };
  for (int attempt = 0; attempt < attempts || (!enough() && attempt < 40 * attempts); ++attempt) {
    for (bool done = false; !done;) {
      const pid_t child = ::fork();
      if (child == 0) {
        bool resumed = false;
        try {
          resumed = run(options, {.seconds = 0}).resumed;
        } catch (...) {
          ::_exit(9);
        }
        ::_exit(resumed ? 1 : 0);
      }
      // Kill within the time that a run takes; the last of a series runs to its end.
      if (kills < 4 * (attempt + 1)) {
        // Half of the times after the first checkpoint, so that there is something to resume from.
        const bool late = random() % 2 == 0;
        for (int wait = 0; late && wait < 40000; ++wait) {
          try {
            const auto journal = PreprocessJournal::load(folder / "killed/out");
            if (journal && journal->documents > 0) break;
          } catch (const Error&) {
            // The child was done, and removed it between the look and the reading.
          }
          siginfo_t ended{};
          ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
          if (ended.si_pid == child) break;
          ::usleep(500);
        }
        ::usleep(static_cast<useconds_t>(random() % 30000));
        ::kill(child, SIGKILL);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      if (WIFSIGNALED(status)) {
        ++kills;
        // An .idx file only exists when its corpus is complete.
        if (std::filesystem::exists(folder / "killed/out_text_document.idx")) {
          IndexedDataset::open(folder / "killed/out_text_document");
        }
      } else {
        ASSERT_NE(WEXITSTATUS(status), 9);
        resumptions += WEXITSTATUS(status);
        done = true;
      }
    }
    EXPECT_TRUE(bytes_of_corpus(folder / "killed/out_text_document") == reference)
        << "after " << kills << " kills";
    EXPECT_EQ(files_in(folder.path() / "killed"),
              (Texts{"out_text_document.bin", "out_text_document.idx"}));
    std::filesystem::remove_all(folder.path() / "killed");
  }
  EXPECT_GE(kills, 3 * attempts);
  EXPECT_GE(resumptions, 1);
}

TEST(Preprocess, BadRecordsAreNamedByFileLineAndByteAndMayBeSkipped) {
  TempFolder folder;
  const std::vector<std::pair<std::string, std::string>> bad = {
      {R"({"text": "cut off)", "not JSON"},
      {R"({"title": 1, "body": 2})", "no key \"text\"; it has title, body"},
      {R"({"text": "a", "text": "b"})", "key \"text\" appears twice"},
      {R"({"text": null})", "key \"text\" holds null"},
      {R"({"text": 7})", "key \"text\" holds a number"},
      {R"({"text": "\ud800"})", "half of a surrogate pair"},
      {"{\"text\": \"a\xFF\"}", "byte 11 of the record (0xff) is not UTF-8"},
      {R"(["text"])", "not an object but a list; each line"},
      {R"([)", "and a list of records from a file named .json"},
      {"{\"text\": \"" + std::string(2000, 'x') + "\"}",
       "the record has 2013 bytes, above --max-record-bytes 1000"},
      {R"({"text": "a"} {"text": "b"})", "not JSON"},
  };
  PreprocessOptions options;
  options.input = {folder / "x.jsonl"};
  options.output_prefix = folder / "out";
  options.max_record_bytes = 1000;
  for (const auto& [line, reason] : bad) {
    const std::string good = "{\"text\": \"good\"}\n";
    put_file(folder / "x.jsonl", good + good + line + "\n" + good);
    options.on_error = OnError::kFail;
    EXPECT_THAT(error_of(options, Fault::kData),
                testing::AllOf(HasSubstr("x.jsonl: line 3 (byte 34): "), HasSubstr(reason)))
        << line;
    EXPECT_EQ(files_in(folder.path()), Texts{"x.jsonl"});
    options.on_error = OnError::kSkip;
    const auto report = run(options);
    EXPECT_EQ(report.bad.count, 1);
    EXPECT_EQ(report.bad.first.at(0).line, 3);
    EXPECT_EQ(texts_of(folder / "out_text_document"), (Texts{"good", "good", "good"})) << line;
    std::filesystem::remove(folder / "out_text_document.bin");
    std::filesystem::remove(folder / "out_text_document.idx");
  }
}

TEST(Preprocess, NulAndEscapesAreText) {
  TempFolder folder;
  put_file(folder / "x.jsonl", R"({"text": "a\u0000b\ud83d\ude00"})");
  PreprocessOptions options;
  options.input = {folder / "x.jsonl"};
  options.output_prefix = folder / "out";
  run(options);
  EXPECT_EQ(texts_of(folder / "out_text_document"),
            (Texts{std::string("a\0b\xF0\x9F\x98\x80", 7)}));
}

TEST(Preprocess, EveryOtherFaultIsOneLineAndLeavesNothing) {
  TempFolder folder;
  std::filesystem::create_directories(folder.path() / "in");
  PreprocessOptions options;
  options.output_prefix = folder / "out/x";
  const auto with = [&](const std::string& name, const std::string& bytes) {
    put_file(folder / ("in/" + name), bytes);
    options.input = {folder / ("in/" + name)};
    const std::string text = error_of(options, Fault::kData);
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    if (std::filesystem::exists(folder / "out")) {
      EXPECT_TRUE(files_in(folder / "out").empty()) << name;
    }
    return text;
  };
  EXPECT_THAT(with("cut.jsonl.gz", packed(".gz", as_jsonl(kTexts)).substr(0, 60)),
              HasSubstr("gzip: the file ends in the middle of its data; fetch the file again"));
  EXPECT_THAT(with("cut.jsonl.zst", packed(".zst", as_jsonl(kTexts)).substr(0, 60)),
              HasSubstr("zstd: "));
  EXPECT_THAT(with("cut.jsonl.xz", packed(".xz", as_jsonl(kTexts)).substr(0, 60)),
              HasSubstr("xz: "));
  EXPECT_THAT(with("cut.jsonl.bz2", packed(".bz2", as_jsonl(kTexts)).substr(0, 60)),
              HasSubstr("bzip2: "));
  std::string damaged = packed(".gz", long_input());
  damaged[damaged.size() / 2] ^= 0x55;
  damaged[damaged.size() / 2 + 1] ^= 0x55;
  put_file(folder / "in/damaged.jsonl.gz", damaged);
  options.input = {folder / "in/damaged.jsonl.gz"};
  EXPECT_THAT(error_of(options, Fault::kData), HasSubstr("gz: "));
  std::filesystem::remove_all(folder / "out");  // what was read of it may stay
  EXPECT_THAT(with("empty.jsonl", ""), HasSubstr("no document in the input; is it empty?"));
  EXPECT_THAT(with("x.csv", "id,body\n1,a\n"), HasSubstr("no column \"text\"; it has id, body"));
  EXPECT_THAT(with("y.csv", "id,text\n1,a,b\n"),
              HasSubstr("y.csv: line 2 (byte 8): got 3 fields, wanted 2"));
  EXPECT_THAT(with("z.csv", "id,text\n1,\"open\n2,b\n"), HasSubstr("not closed"));
  EXPECT_THAT(with("open.json", "[{\"text\": \"a\"},\n"),
              HasSubstr("the outermost array is not closed"));
  EXPECT_THAT(with("latin.txt", "caf\xE9\n"),
              HasSubstr("latin.txt: line 1 (byte 0): byte 3 of the text (0xe9) is not UTF-8"));
  EXPECT_THAT(with("wide.jsonl", std::string("\xFF\xFE{\0\"\0", 6)),
              HasSubstr("wide.jsonl: is a text in UTF-16"));
  EXPECT_THAT(with("wide.csv", std::string("\xFE\xFF\0i\0d", 6)),
              HasSubstr("convert it with iconv -f UTF-16 -t UTF-8"));
  EXPECT_THAT(with("wider.txt", std::string("\xFF\xFE\0\0a\0\0\0", 8)),
              HasSubstr("wider.txt: is a text in UTF-32"));
  EXPECT_THAT(with("what.bin",
                   "\x7F"
                   "ELF"),
              HasSubstr("say it with --input-format"));
  EXPECT_THAT(with("wiki.xml", "<mediawiki><page><ns>0</ns><text>a</text></page><page>"),
              HasSubstr("no </page>"));
}

TEST(Preprocess, OptionsThatDoNotFitAreRefused) {
  TempFolder folder;
  put_file(folder / "x.jsonl", as_jsonl({"a"}));
  const auto with = [&](auto change) {
    PreprocessOptions options;
    options.input = {folder / "x.jsonl"};
    options.output_prefix = folder / "out";
    change(options);
    return error_of(options, Fault::kUsage);
  };
  EXPECT_THAT(with([](auto& o) { o.output_prefix = ""; }), HasSubstr("no --output-prefix"));
  EXPECT_THAT(with([](auto& o) { o.input.clear(); }), HasSubstr("no --input"));
  EXPECT_THAT(with([](auto& o) {
                o.json_keys = {"text", "text"};
              }),
              HasSubstr("names a key twice"));
  EXPECT_THAT(with([](auto& o) { o.workers = 0; }), HasSubstr("--workers: got 0"));
  EXPECT_THAT(with([](auto& o) { o.map_keys = "{text}"; }), HasSubstr("--map-keys: got {text}"));
  EXPECT_THAT(with([](auto& o) { o.map_keys = R"({"txt": "a"})"; }), HasSubstr("names \"txt\""));
  EXPECT_THAT(with([](auto& o) { o.keep_newlines = true; }), HasSubstr("needs --split-sentences"));
  EXPECT_THAT(with([](auto& o) {
                o.partitions = 2;
                o.partition_index = 2;
              }),
              HasSubstr("--partition-index 2"));
  EXPECT_THAT(
      with([](auto& o) {
        o.partitions = 2;
        o.partition_index = 1;
      }),
      HasSubstr("--partitions 2: a partition has at least one whole file, and there are 1"));
  put_file(folder / "params.json", "{\"path\": \"json,\n \"streaming\": True}");
  EXPECT_THAT(with([&](auto& o) {
                o.input.clear();
                o.hf_datasets_params = folder / "params.json";
              }),
              HasSubstr("params.json:1:"));
}

TEST(Preprocess, PartitionsMergedEqualTheWhole) {
  TempFolder folder;
  PreprocessOptions options;
  for (int i = 0; i < 5; ++i) {
    options.input.push_back(folder / (std::to_string(i) + ".jsonl"));
    put_file(options.input.back(), as_jsonl({"file " + std::to_string(i), "more"}));
  }
  options.output_prefix = folder / "whole";
  run(options);
  std::vector<std::string> parts;
  options.partitions = 3;
  for (int i = 0; i < 3; ++i) {
    options.partition_index = i;
    options.output_prefix = folder / ("part" + std::to_string(i));
    parts.push_back(run(options).prefixes.at(0));
  }
  EXPECT_EQ(merge_corpora(parts, folder / "merged").documents, 10);
  EXPECT_EQ(bytes_of_corpus(folder / "merged"), bytes_of_corpus(folder / "whole_text_document"));
}

TEST(Preprocess, HuggingFaceParametersNameLocalFiles) {
  TempFolder folder;
  put_file(folder / "x.jsonl", as_jsonl({"a"}));
  put_file(folder / "p.json", nlohmann::json{{"path", "json"},
                                             {"data_files", {folder / "x.jsonl"}},
                                             {"split", "train"},
                                             {"streaming", true}}
                                  .dump());
  PreprocessOptions options;
  options.hf_datasets_params = folder / "p.json";
  options.output_prefix = folder / "out";
  EXPECT_EQ(run(options).documents, 1);
  // Scripts give --input as well, which must then be the same.
  options.input = {"json"};
  EXPECT_EQ(run(options).documents, 1);
  options.input = {folder / "x.jsonl"};
  EXPECT_THAT(error_of(options, Fault::kUsage), HasSubstr("name different data"));
  options.input.clear();
  // "name" is a configuration: of README.md, else a folder there or in data; "split" one of its.
  std::filesystem::create_directories(folder / "wiki/data/20220301.en");
  std::filesystem::create_directories(folder / "wiki/20220301.fr");
  put_file(folder / "wiki/data/20220301.en/train-00000-of-00001.jsonl", as_jsonl({"a", "b"}));
  put_file(folder / "wiki/data/20220301.en/test-00000-of-00001.jsonl", as_jsonl({"c"}));
  put_file(folder / "wiki/20220301.fr/all.jsonl", as_jsonl({"d", "e", "f"}));
  const auto documents = [&](const char* name, const char* split) {
    put_file(folder / "p.json",
             nlohmann::json{
                 {"path", folder / "wiki"}, {"name", name}, {"streaming", true}, {"split", split}}
                 .dump());
    return run(options).documents;
  };
  EXPECT_EQ(documents("20220301.en", "train"), 2);
  EXPECT_EQ(documents("20220301.en", "test"), 1);
  EXPECT_EQ(documents("20220301.fr", "train"), 3);
  put_file(folder / "wiki/README.md",
           "---\nconfigs:\n- config_name: simple\n  data_files: 20220301.fr/*.jsonl\n---\n");
  EXPECT_EQ(documents("simple", "train"), 3);
  EXPECT_EQ(documents("20220301.en", "train"), 2);
  put_file(folder / "p.json",
           nlohmann::json{{"path", folder / "wiki"}, {"name", "20220301.de"}}.dump());
  EXPECT_THAT(error_of(options, Fault::kUsage),
              HasSubstr("README.md has no configuration \"20220301.de\""));
  put_file(folder / "p.json",
           nlohmann::json{{"path", folder / "wiki"}, {"name", "simple"}, {"split", "train[:10%]"}}
               .dump());
  EXPECT_THAT(error_of(options, Fault::kUsage), HasSubstr("\"split\" is a part of a split"));
  put_file(folder / "p.json", R"({"path": "wikipedia", "name": "20220301.en"})");
  EXPECT_THAT(error_of(options, Fault::kUsage), HasSubstr("data sets are read from local files"));
}

// Counts lines of information.
class CountingLog final : public Log {
 public:
  void write(LogLevel level, std::string_view line) override {
    if (level == LogLevel::kInfo && line.find(" documents, ") != std::string_view::npos) ++lines;
  }
  int lines = 0;
};

TEST(Preprocess, LogsEverySoManyDocuments) {
  TempFolder folder;
  // Of several blocks: a line comes when one is written.
  Texts texts;
  for (int i = 0; i < 300; ++i) texts.push_back(std::string(40000, 'a'));
  put_file(folder / "x.jsonl", as_jsonl(texts));
  PreprocessOptions options;
  options.input = {folder / "x.jsonl"};
  options.output_prefix = folder / "out";
  CountingLog log;
  preprocess(options, ByteTokenizer(), log, silent_progress);
  EXPECT_EQ(log.lines, 0);
  options.log_interval = 100;
  options.overwrite = true;
  preprocess(options, ByteTokenizer(), log, silent_progress);
  EXPECT_EQ(log.lines, 3);
  options.log_interval = -1;
  EXPECT_THAT(error_of(options, Fault::kUsage), HasSubstr("--log-interval: got -1"));
}

TEST(Preprocess, ReadsARealParquetFile) {
  TempFolder folder;
  const std::string file =
      PITON_SOURCE_DIR "/../shared/data/parquet/ifbench_exp_test-00000-of-00001.parquet";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no shared test data at " << file;
  PreprocessOptions options;
  options.input = {file};
  options.json_keys = {"prompt"};
  options.output_prefix = folder / "out";
  if (!can_read_parquet()) {
    EXPECT_THAT(error_of(options, Fault::kUsage), HasSubstr("this build cannot read Parquet"));
    return;
  }
  const auto whole = run(options);
  EXPECT_EQ(whole.documents, 1387);
  EXPECT_EQ(whole.text_bytes, 3172979);
  const Texts texts = texts_of(folder / "out_prompt_document");
  EXPECT_THAT(texts[0],
              testing::StartsWith("why might a company initiate a price drop on a product"));
  const auto order = [&](int workers) {
    options.workers = workers;
    run(options);
    return bytes_of_corpus(folder / "out_prompt_document");
  };
  EXPECT_EQ(order(1), order(3));

  // Rows above the limit are named by their number, from 0, or left out; the others are as before.
  options.max_record_bytes = 1000;
  Texts kept;
  std::size_t first = texts.size();
  for (std::size_t i = texts.size(); i-- > 0;) {
    if (texts[i].size() > 1000) {
      first = i;
    } else {
      kept.insert(kept.begin(), texts[i]);
    }
  }
  EXPECT_THAT(
      error_of(options, Fault::kData),
      HasSubstr(fmt::format("row {}: the row has {} bytes of text, --max-record-bytes allows 1000",
                            first, texts[first].size())));
  options.on_error = OnError::kSkip;
  const auto report = run(options);
  EXPECT_EQ(report.bad.count, static_cast<std::int64_t>(texts.size() - kept.size()));
  EXPECT_EQ(texts_of(folder / "out_prompt_document"), kept);

  options.json_keys = {"kwargs"};
  EXPECT_THAT(error_of(options, Fault::kData), HasSubstr("column \"kwargs\" holds list"));
  options.json_keys = {"text"};
  EXPECT_THAT(error_of(options, Fault::kData), HasSubstr("no column \"text\"; it has key, prompt"));
}

TEST(Preprocess, ABadArchiveAtTheEndCostsNothingButItself) {
  TempFolder folder;
  put_file(folder / "a.jsonl", long_input());
  put_file(folder / "b.jsonl.gz", packed(".gz", long_input()));
  put_file(folder / "c.jsonl", as_jsonl({"the last file"}));
  PreprocessOptions options;
  options.input = {folder / "a.jsonl", folder / "b.jsonl.gz", folder / "c.jsonl"};
  for (const bool unique : {false, true}) {
    options.remove_duplicates = unique;
    options.output_prefix = folder / "whole";
    const auto whole = run(options);
    const std::string reference = bytes_of_corpus(folder / "whole_text_document");

    const std::string prefix = unique ? "unique" : "parts";
    options.output_prefix = folder / prefix;
    const std::string archive = packed(".gz", long_input());
    put_file(folder / "b.jsonl.gz", archive.substr(0, archive.size() / 2));
    EXPECT_THAT(error_of(options, Fault::kData), HasSubstr("gzip: the file ends in the middle"));
    EXPECT_FALSE(std::filesystem::exists(folder / (prefix + "_text_document.idx")));
    // The same again fails again, and loses nothing.
    EXPECT_THAT(error_of(options, Fault::kData), HasSubstr("gzip: the file ends in the middle"));
    // The whole archive in its place; what was read of the broken one is read again.
    put_file(folder / "b.jsonl.gz", archive);
    const auto report = run(options);
    EXPECT_TRUE(report.resumed);
    EXPECT_EQ(report.documents, whole.documents);
    EXPECT_EQ(report.duplicates, whole.duplicates);
    EXPECT_EQ(report.text_bytes, whole.text_bytes);
    EXPECT_TRUE(bytes_of_corpus(folder / (prefix + "_text_document")) == reference);
    // Nothing but the corpus is left.
    for (const std::string& name : files_in(folder.path())) {
      EXPECT_TRUE(!name.starts_with(prefix) || name.ends_with(".bin") || name.ends_with(".idx"))
          << name;
    }
  }
}

TEST(Preprocess, CorporaThatAreThereAreReplacedOnRequestOnly) {
  TempFolder folder;
  put_file(folder / "x.jsonl", as_jsonl({"a", "b"}));
  PreprocessOptions options;
  options.input = {folder / "x.jsonl"};
  options.output_prefix = folder / "out";
  const auto strict = [&] {
    return preprocess(options, ByteTokenizer(), silent_log, silent_progress);
  };
  strict();
  const std::string before = bytes_of_corpus(folder / "out_text_document");
  put_file(folder / "x.jsonl", as_jsonl({"c"}));
  try {
    strict();
    ADD_FAILURE() << "it was replaced";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUsage);
    EXPECT_THAT(error.what(),
                HasSubstr("out_text_document.idx is there already; give --overwrite"));
  }
  EXPECT_TRUE(bytes_of_corpus(folder / "out_text_document") == before);
  options.overwrite = true;
  strict();
  EXPECT_EQ(texts_of(folder / "out_text_document"), Texts{"c"});
  EXPECT_THROW(merge_corpora({folder / "out_text_document"}, folder / "out_text_document"), Error);
  merge_corpora({folder / "out_text_document"}, folder / "joined");
  EXPECT_THROW(merge_corpora({folder / "out_text_document"}, folder / "joined"), Error);
  merge_corpora({folder / "out_text_document"}, folder / "joined", /*overwrite=*/true);
  EXPECT_EQ(texts_of(folder / "joined"), Texts{"c"});
}

TEST(Preprocess, ThatFailedWhilePuttingTheCorporaInPlaceGoesOnThere) {
  TempFolder folder;
  put_file(folder / "x.jsonl", "{\"a\": \"one\", \"b\": \"two\"}\n");
  PreprocessOptions options;
  options.input = {folder / "x.jsonl"};
  options.json_keys = {"a", "b"};
  options.output_prefix = folder / "out";
  // A folder in the way of the second index: the first corpus is in place by then.
  std::filesystem::create_directories(folder / "out_b_document.idx/x");
  EXPECT_THAT(error_of(options, Fault::kData), HasSubstr("Is a directory"));
  EXPECT_EQ(texts_of(folder / "out_a_document"), Texts{"one"});
  std::filesystem::remove_all(folder / "out_b_document.idx");
  const auto report = run(options);
  EXPECT_TRUE(report.resumed);
  EXPECT_EQ(report.documents, 1);
  EXPECT_EQ(texts_of(folder / "out_a_document"), Texts{"one"});
  EXPECT_EQ(texts_of(folder / "out_b_document"), Texts{"two"});
  EXPECT_EQ(files_in(folder.path()),
            (Texts{"out_a_document.bin", "out_a_document.idx", "out_b_document.bin",
                   "out_b_document.idx", "x.jsonl"}));
}

TEST(Preprocess, AChangedInputStartsAfresh) {
  TempFolder folder;
  put_file(folder / "x.jsonl", as_jsonl({"a", "b"}));
  put_file(folder / "out.preprocess.json",
           R"({"work": "other", "file": 0, "byte": 5, "positions": [[1,1,1]],
    "duplicates_logged": 0, "documents": 1, "duplicates": 0, "text_bytes": 1, "bad_records": 0, "first_bad": []})");
  PreprocessOptions options;
  options.input = {folder / "x.jsonl"};
  options.output_prefix = folder / "out";
  EXPECT_FALSE(run(options).resumed);
  EXPECT_EQ(texts_of(folder / "out_text_document"), (Texts{"a", "b"}));
}

// The files before the one where a run was are those that it has read.
TEST(Preprocess, AChangedInputThatWasReadStartsAfresh) {
  TempFolder folder;
  put_file(folder / "x.jsonl", as_jsonl({"a", "b"}));
  put_file(folder / "y.jsonl", as_jsonl({"c"}));
  PreprocessOptions options;
  options.input = {folder / "x.jsonl", folder / "y.jsonl"};
  options.output_prefix = folder / "out";
  std::filesystem::create_directories(folder / "out_text_document.idx/x");
  EXPECT_THAT(error_of(options, Fault::kData), HasSubstr("Is a directory"));
  std::filesystem::remove_all(folder / "out_text_document.idx");
  put_file(folder / "x.jsonl", as_jsonl({"new", "and", "longer"}));
  EXPECT_FALSE(run(options).resumed);
  EXPECT_EQ(texts_of(folder / "out_text_document"), (Texts{"new", "and", "longer", "c"}));
}

TEST(Preprocess, RemovesDuplicatesAndNothingElse) {
  TempFolder folder;
  put_file(folder / "x.jsonl", as_jsonl({"a", "b", "a", "c", "b"}));
  PreprocessOptions options;
  options.input = {folder / "x.jsonl"};
  options.output_prefix = folder / "out";
  options.remove_duplicates = true;
  EXPECT_EQ(run(options).duplicates, 2);
  EXPECT_EQ(texts_of(folder / "out_text_document"), (Texts{"a", "b", "c"}));
  options.remove_duplicates = false;
  EXPECT_EQ(run(options).duplicates, 0);
}

TEST(Preprocess, AJournalNamesNoFilesOfOtherFolders) {
  TempFolder folder;
  for (const std::string& suffix : {std::string("/../elsewhere"), std::string("_a\0b", 4)}) {
    PreprocessJournal journal;
    journal.corpora = {"_text_document", suffix};
    journal.store(folder / "out");
    EXPECT_THAT(message_of(Fault::kData, [&] { PreprocessJournal::load(folder / "out"); }),
                HasSubstr("names files outside of its folder"));
  }
}

// What a run has done is stored every so often, not with every block.
TEST(Preprocess, StoresItsPlaceWhenItsTimeHasCome) {
  TempFolder folder;
  put_file(folder / "x.jsonl", long_input());
  PreprocessOptions options;
  options.input = {folder / "x.jsonl"};
  options.output_prefix = folder / "out";
  // Keeps the states of the journal.
  class Watch final : public Log {
   public:
    explicit Watch(std::string file) : file_(std::move(file)) {}
    void write(LogLevel, std::string_view) override {
      std::error_code absent;
      if (std::filesystem::exists(file_, absent)) states.insert(read_text_file(file_));
    }
    std::set<std::string> states;

   private:
    std::string file_;
  };
  options.overwrite = true;
  options.log_interval = 20;
  Watch rarely(folder / "out.preprocess.json");
  preprocess(options, ByteTokenizer(), rarely, silent_progress, {.seconds = 1000});
  Watch always(folder / "out.preprocess.json");
  preprocess(options, ByteTokenizer(), always, silent_progress, {.seconds = 0});
  EXPECT_EQ(rarely.states.size(), 1U);
  EXPECT_GT(always.states.size(), 1U);
}

}  // namespace
}  // namespace piton
