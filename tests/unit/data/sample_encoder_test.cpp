#include "data/preprocess/sample_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "data/corpus/indexed_dataset.h"
#include "data/preprocess/preprocess.h"
#include "instruct/talks.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "text/files/byte_tokenizer.h"

namespace piton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Lines = std::vector<std::string>;

// Runs preprocess with the tokenizer of bytes in a temporary folder.
class SampleRun {
 public:
  SampleRun() {
    options.output_prefix = (folder / "out").string();
    options.instruct.handler_name = "AlpacaStyleInstructionHandler";
    options.instruct.prompt_type = "empty";
    options.overwrite = true;
  }

  void put(const std::string& name, const std::string& text) const {
    write_text_file(folder / name, text);
  }
  // Records of instruction and output, "question|answer".
  void put_pairs(const std::string& name, const Lines& pairs) const {
    std::string text;
    for (const std::string& pair : pairs) {
      const std::size_t middle = pair.find('|');
      text += nlohmann::json(
                  {{"instruction", pair.substr(0, middle)}, {"output", pair.substr(middle + 1)}})
                  .dump() +
              "\n";
    }
    put(name, text);
  }

  PreprocessReport go(CheckpointRule rule = {}) {
    SilentLog log;
    SilentProgress progress;
    return preprocess(options, tokenizer, log, progress, rule);
  }

  // Sequences of one of the files.
  Lines texts(const std::string& part) const {
    Lines lines;
    const auto corpus = IndexedDataset::open(folder / ("out_packed_" + part + "_document"));
    for (std::int64_t s = 0; s < corpus.sequences(); ++s) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(corpus.length(s)));
      corpus.read(s, 0, ids);
      lines.push_back(byte_text(ids));
    }
    return lines;
  }

  Lines names() const {
    Lines names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  TempFolder folder;
  ByteTokenizer tokenizer;
  PreprocessOptions options;
};

TEST(SampleEncoder, ReadsTablesAndJson) {
  SampleRun run;
  run.put("a.csv", "output,instruction,input\nb,a,\nd,c,x\n");
  run.options.input = {run.folder / "a.csv"};
  EXPECT_EQ(run.go().samples, 2);
  EXPECT_THAT(run.texts("input_ids"), ElementsAre("ab", "c\nxd"));
  EXPECT_THAT(run.texts("labels"), ElementsAre("_b", "___d"));
  run.put("a.json", R"([{"instruction": "e", "output": "f"},
                        {"output": "h", "instruction": "g", "rest": [1]}])");
  run.options.input = {run.folder / "a.json"};
  EXPECT_EQ(run.go().samples, 2);
  EXPECT_THAT(run.texts("input_ids"), ElementsAre("ef", "gh"));
}

TEST(SampleEncoder, LeavesOutWhatIsTooLongOrTeachesNothing) {
  SampleRun run;
  run.put_pairs("a.jsonl", {"a|b", "a|bcdefgh", "a|", "c|d", "a|b"});
  run.options.input = {run.folder / "a.jsonl"};
  run.options.instruct.seq_length = 8;
  run.options.remove_duplicates = true;
  const PreprocessReport report = run.go();
  EXPECT_THAT(run.texts("input_ids"), ElementsAre("ab", "cd"));
  EXPECT_EQ(report.samples, 2);
  EXPECT_EQ(report.taught_tokens, 2);
  EXPECT_EQ(report.duplicates, 1);
  EXPECT_EQ(report.too_long.count, 1);
  EXPECT_EQ(report.too_long.first.at(0).line, 2);
  EXPECT_EQ(report.unteaching.count, 1);
  EXPECT_EQ(report.unteaching.first.at(0).line, 3);
  run.options.instruct.cutoff_len = 100;  // cut to one less than --seq-length
  EXPECT_EQ(run.go().too_long.count, 0);
  EXPECT_THAT(run.texts("input_ids"), ElementsAre("ab", "abcdefg", "cd"));
}

TEST(SampleEncoder, AConversationMayHaveSeveralSamples) {
  SampleRun run;
  run.put("a.jsonl", R"({"chat": {"turn_1": {"Human": "a", "MOSS": "b"},
                                  "turn_2": {"Human": "c", "MOSS": "d"}}})");
  run.options.input = {run.folder / "a.jsonl"};
  run.options.input_format = "json";
  run.options.instruct.handler_name = "MOSSInstructionHandler";
  run.options.instruct.prompt_type = "";
  const PreprocessReport report = run.go();
  EXPECT_EQ(report.documents, 1);
  EXPECT_EQ(report.samples, 2);
  EXPECT_TRUE(run.texts("labels")[1].ends_with("_d\n"));
}

TEST(SampleEncoder, PairsAreFourFiles) {
  SampleRun run;
  run.put("a.jsonl", R"({"instruction": "a", "chosen": "b", "rejected": "cd"})");
  run.options.input = {run.folder / "a.jsonl"};
  run.options.instruct.handler_name = "AlpacaStylePairwiseHandler";
  run.go();
  EXPECT_THAT(run.texts("chosen_input_ids"), ElementsAre("ab"));
  EXPECT_THAT(run.texts("chosen_labels"), ElementsAre("_b"));
  EXPECT_THAT(run.texts("rejected_input_ids"), ElementsAre("acd"));
  EXPECT_THAT(run.texts("rejected_labels"), ElementsAre("_cd"));
}

TEST(SampleEncoder, AnInterruptedRunContinuesWithItsCounts) {
  SampleRun run;
  run.put_pairs("a.jsonl", {"a|b", "c|", "e|f"});
  run.put("b.jsonl", "{\"instruction\": \"g\"}\n");
  run.options.input = {run.folder / "a.jsonl", run.folder / "b.jsonl"};
  EXPECT_THAT(message_of(Fault::kData, [&] { run.go({0}); }), HasSubstr("no key \"output\""));
  run.put_pairs("b.jsonl", {"g|hi"});
  const PreprocessReport report = run.go({0});
  EXPECT_TRUE(report.resumed);
  EXPECT_EQ(report.samples, 3);
  EXPECT_EQ(report.taught_tokens, 4);
  EXPECT_EQ(report.unteaching.count, 1);
  EXPECT_THAT(run.texts("labels"), ElementsAre("_b", "_f", "_hi"));
}

TEST(SecondPass, PacksAndNumbersSamples) {
  SampleRun run;
  run.put_pairs("a.jsonl", {"a|bc", "d|e", "f|ghij", "kl|mno", "0|12345678"});
  run.options.input = {run.folder / "a.jsonl"};
  run.options.instruct.seq_length = 8;
  run.options.instruct.pack = true;
  EXPECT_EQ(run.go().too_long.count, 1);
  EXPECT_THAT(run.texts("input_ids"), ElementsAre("klmnode$", "fghij$$$", "abc$$$$$"));
  EXPECT_THAT(run.texts("labels"), ElementsAre("__mno_e_", "_ghij___", "_bc_____"));
  const std::string ones(8, '\1');
  EXPECT_THAT(run.texts("attention_mask"), ElementsAre(ones, ones, ones));
  run.options.instruct.neat_pack = true;
  EXPECT_EQ(run.go().too_long.count, 0);
  using namespace std::string_literals;
  EXPECT_THAT(run.texts("attention_mask"), ElementsAre("\1\1\1\1\1\1\1\0"s, "\1\1\1\1\1\2\2\0"s,
                                                       "\1\1\1\1\1\0\0\0"s, "\1\1\1\0\0\0\0\0"s));
  EXPECT_EQ(run.texts("input_ids")[0], "0123456$");
  for (const std::string& name : run.names()) EXPECT_EQ(name.find("unpacked"), name.npos) << name;
}

TEST(SecondPass, OneThatFailedDoesNotRepeatTheFirst) {
  SampleRun run;
  run.put_pairs("a.jsonl", {"a|bc", "d|e"});
  run.options.input = {run.folder / "a.jsonl"};
  run.options.instruct.seq_length = 8;
  run.options.instruct.pack = true;
  const std::string blocked = run.folder / "out_packed_labels_document.idx";
  std::filesystem::create_directories(blocked + "/x");
  EXPECT_THROW(run.go(), Error);
  std::filesystem::remove_all(blocked);
  const PreprocessReport report = run.go();
  EXPECT_TRUE(report.resumed);
  EXPECT_EQ(report.taught_tokens, 3);
  EXPECT_THAT(run.texts("labels"), ElementsAre("_bc_e___"));
  // Another input is another run.
  run.put_pairs("a.jsonl", {"a|bcd"});
  EXPECT_FALSE(run.go().resumed);
  EXPECT_THAT(run.texts("labels"), ElementsAre("_bcd____"));
}

TEST(SecondPass, MixesDataSets) {
  SampleRun run;
  run.put_pairs("a.jsonl", {"a|1", "a|2", "a|3"});
  run.put_pairs("b.jsonl", {"b|1", "b|2"});
  run.options.input = {run.folder / "a.jsonl"};
  run.options.datasets = {run.folder / "b.jsonl"};
  run.options.instruct.mix_strategy = MixStrategy::kUnder;
  run.go();
  EXPECT_THAT(run.texts("input_ids"), ElementsAre("a1", "b1", "a2", "b2"));
  run.options.instruct.mix_strategy = MixStrategy::kOver;
  EXPECT_EQ(run.go().taught_tokens, 6);
  EXPECT_THAT(run.texts("input_ids"), ElementsAre("a1", "b1", "a2", "b2", "a3", "b1"));
  run.options.instruct.mix_strategy = MixStrategy::kConcat;
  run.options.instruct.max_samples = 1;
  EXPECT_EQ(run.go().documents, 2);
  EXPECT_THAT(run.texts("input_ids"), ElementsAre("a1", "b1"));
}

}  // namespace
}  // namespace piton
