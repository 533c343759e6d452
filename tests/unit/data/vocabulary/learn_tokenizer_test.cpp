// Learned tokenizers against those of the `tokenizers` library (tools/oracle/train_tokenizers.py),
// and what becomes of bad input.
#include "data/vocabulary/learn_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/files/files.h"
#include "base/json.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "text/files/tokenizer_options.h"

namespace piton {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::filesystem::path kGolden =
    std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/tokenizer_training";

struct Learned {
  json tokenizer;
  std::string text;  // of tokenizer.json
  LearnReport report;
};

// With the flags of `piton train-tokenizer`.
LearnReport learn_into(const std::filesystem::path& folder, std::vector<std::string> flags,
                       int threads = 1) {
  LearnOptions options;
  TokenizerTrainingOptions training;
  OptionSet set;
  set.add("Input and output", options);
  set.add("Vocabulary", training);
  set.parse(flags);
  options.save = folder.string();
  SilentLog log;
  SilentProgress progress;
  ThreadPool pool(threads);
  return learn_tokenizer(options, training, pool, log, progress);
}

Learned learn(const std::vector<std::string>& flags, int threads = 1) {
  const TempFolder folder;
  Learned learned;
  learned.report = learn_into(folder / "t", flags, threads);
  learned.text = read_text_file(folder / "t/tokenizer.json");
  learned.tokenizer = read_json<nlohmann::json>(learned.text);
  return learned;
}

std::vector<std::string> with_corpus(std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--input", (kGolden / "corpus.jsonl").string()});
  return flags;
}

class LearnedTokenizer : public testing::TestWithParam<const char*> {
 protected:
  json golden() const {
    return read_json<nlohmann::json>(read_text_file(kGolden / (std::string(GetParam()) + ".json")));
  }
};

TEST_P(LearnedTokenizer, IsThatOfTheTokenizersLibrary) {
  const json wanted = golden();
  const json got = learn(with_corpus(wanted["flags"])).tokenizer;
  for (const auto& [key, value] : wanted["tokenizer"].items()) {
    if (key == "model") continue;
    EXPECT_EQ(got.value(key, json("absent")), value) << key;
  }
  for (const auto& [key, value] : wanted["tokenizer"]["model"].items()) {
    if (key == "vocab" || key == "merges") continue;
    EXPECT_EQ(got["model"].value(key, json("absent")), value) << key;
  }
  EXPECT_EQ(got["model"].value("merges", json()),
            wanted["tokenizer"]["model"].value("merges", json()));
  EXPECT_EQ(got["model"]["vocab"], wanted["tokenizer"]["model"]["vocab"]);
}

INSTANTIATE_TEST_SUITE_P(Bpe, LearnedTokenizer,
                         testing::Values("gpt2", "llama3", "qwen2", "digits", "bpe", "bpe-limited",
                                         "wordpiece"));

// The library adds its sums up in the order of a hash table, so its last digits differ from run to
// run: 1e-9 of sums of 1e4 terms, and what the logarithm makes of them. Characters that have lost
// their place come back 0.0001 apart, below all others, there in the order of a hash table.
class LearnedUnigram : public LearnedTokenizer {};

TEST_P(LearnedUnigram, HasThePiecesAndScoresOfTheTokenizersLibrary) {
  const json wanted = golden();
  const json got = learn(with_corpus(wanted["flags"])).tokenizer;
  for (const char* key :
       {"added_tokens", "normalizer", "pre_tokenizer", "decoder", "post_processor"}) {
    EXPECT_EQ(got[key], wanted["tokenizer"][key]) << key;
  }
  EXPECT_EQ(got["model"]["unk_id"], wanted["tokenizer"]["model"]["unk_id"]);
  const json& mine = got["model"]["vocab"];
  const json& theirs = wanted["tokenizer"]["model"]["vocab"];
  ASSERT_EQ(mine.size(), theirs.size());
  std::map<std::string, double> scores;
  for (const json& piece : theirs) scores[piece[0]] = piece[1];
  const double lowest = theirs.back()[1];
  int came_back = 0;
  for (std::size_t id = 0; id < mine.size(); ++id) {
    const std::string piece = mine[id][0];
    const double score = mine[id][1];
    ASSERT_TRUE(scores.contains(piece)) << piece;
    EXPECT_NEAR(score, theirs[id][1].get<double>(), 1e-7) << id;
    if (score < lowest + 0.02) {
      ++came_back;
      EXPECT_NEAR(score, scores[piece], 0.02) << piece;
    } else {
      EXPECT_NEAR(score, scores[piece], 1e-7) << piece;
    }
  }
  EXPECT_LT(came_back, 200);
}

INSTANTIATE_TEST_SUITE_P(Unigram, LearnedUnigram, testing::Values("unigram", "unigram-cut"));

TEST(LearnTokenizer, GivesTheSameForAnyNumberOfThreads) {
  for (const char* algorithm : {"byte-level-bpe", "bpe", "wordpiece", "unigram"}) {
    const auto flags = with_corpus({"--algorithm", algorithm, "--vocab-size", "1400"});
    const Learned one = learn(flags, 1);
    for (const int threads : {2, 3, 8}) {
      EXPECT_EQ(learn(flags, threads).text, one.text) << algorithm << ", " << threads;
    }
  }
}

// Every kind is read by open_tokenizer(), and gives the text back (wordpiece apart, which is in
// lower case).
TEST(LearnTokenizer, MakesTokenizersThatEncodeAndDecode) {
  const std::string text = "The king's 12 men said: 宝玉\nnaïve  code\t(x)";
  for (const char* algorithm : {"byte-level-bpe", "bpe", "wordpiece", "unigram"}) {
    const TempFolder folder;
    learn_into(folder / "t", with_corpus({"--algorithm", algorithm, "--vocab-size", "1500"}));
    TokenizerOptions options;
    options.name_or_path = (folder / "t").string();
    const auto tokenizer = open_tokenizer(options);
    const std::vector<std::int32_t> ids = tokenizer->encode(text);
    EXPECT_LT(ids.size(), text.size()) << algorithm;
    EXPECT_EQ(tokenizer->vocabulary_size(), 1500) << algorithm;
    const std::string back = tokenizer->decode(ids);
    if (std::string(algorithm) == "unigram") {
      EXPECT_EQ(back, "The king's 12 men said: 宝玉 naïve code (x)");  // nmt and spaces
    } else if (std::string(algorithm) == "wordpiece") {
      EXPECT_THAT(back, HasSubstr("the king"));
      EXPECT_TRUE(tokenizer->special().cls && tokenizer->special().mask);
    } else {
      EXPECT_EQ(back, text) << algorithm;
      EXPECT_TRUE(tokenizer->special().eos) << algorithm;
    }
  }
}

TEST(LearnTokenizer, ReadsKeysTextsAndLists) {
  const TempFolder folder;
  write_text_file(folder / "a.jsonl",
                  "{\"title\": \"one two\", \"body\": [\"three\", \"four\"]}\n\n"
                  "{\"title\": \"five\", \"body\": \"six\"}\n");
  write_text_file(folder / "b.txt", "seven\neight nine\n");
  const LearnReport json = learn_into(
      folder / "t", {"--input", (folder / "a.jsonl").string(), "--json-keys", "title", "body"});
  EXPECT_EQ(json.documents, 2);
  EXPECT_EQ(json.words, 6);  // "one", " two", "three", "four", "five", "six"
  EXPECT_EQ(json.text_bytes, 23);
  const LearnReport lines =
      learn_into(folder / "u", {"--input", (folder / "b.txt").string(), "--sample-by", "line"});
  EXPECT_EQ(lines.documents, 2);
  EXPECT_EQ(lines.words, 3);  // "seven", "eight", " nine"
}

std::string fault_of(Fault fault, std::vector<std::string> flags) {
  const TempFolder folder;
  const std::string message =
      message_of(fault, [&] { learn_into(folder / "t", std::move(flags)); });
  EXPECT_FALSE(std::filesystem::exists(folder / "t/tokenizer.json"));
  EXPECT_FALSE(std::filesystem::exists(folder / "t/tokenizer_config.json"));
  return message;
}

TEST(LearnTokenizer, RefusesSizesThatDoNotHoldTheAlphabet) {
  EXPECT_EQ(fault_of(Fault::kUsage, with_corpus({"--vocab-size", "256"})),
            "--vocab-size: got 256, wanted at least 257: 1 special tokens and bytes and 256 "
            "characters; raise it, or leave out rare characters with --limit-alphabet");
  EXPECT_THAT(fault_of(Fault::kUsage, with_corpus({"--algorithm", "bpe", "--vocab-size", "300"})),
              HasSubstr("--vocab-size: got 300, wanted at least "));
  EXPECT_THAT(
      fault_of(Fault::kUsage, with_corpus({"--algorithm", "unigram", "--vocab-size", "300"})),
      HasSubstr("3 special tokens and "));
  EXPECT_EQ(fault_of(Fault::kUsage, with_corpus({"--vocab-size", "0"})),
            "--vocab-size: got 0, wanted 1 to 16777215");
}

TEST(LearnTokenizer, RefusesTokensAndStepsThatDoNotFit) {
  EXPECT_EQ(fault_of(Fault::kUsage, with_corpus({"--special-tokens", "<a>", "<b>", "<a>"})),
            "--special-tokens: got \"<a>\" twice, wanted each token once");
  EXPECT_EQ(fault_of(Fault::kUsage, with_corpus({"--eos-token", "<e>"})),
            "--eos-token: got \"<e>\", wanted one of --special-tokens: <|endoftext|>");
  EXPECT_EQ(fault_of(Fault::kUsage, with_corpus({"--pre-tokenizer", "bert"})),
            "--pre-tokenizer: got bert, wanted gpt2 or llama3 or qwen2 with --algorithm "
            "byte-level-bpe");
  EXPECT_THAT(fault_of(Fault::kUsage, with_corpus({"--normalizer", "nfx"})),
              HasSubstr("--normalizer: got \"nfx\", wanted none, nfc,"));
  EXPECT_THAT(fault_of(Fault::kUsage, with_corpus({"--limit-alphabet", "90"})),
              HasSubstr("the alphabet of byte-level-bpe is the 256 bytes"));
  EXPECT_THAT(
      fault_of(Fault::kUsage, with_corpus({"--algorithm", "unigram", "--special-tokens", "<s>"})),
      HasSubstr("needs one for what has no piece; add <unk>"));
}

TEST(LearnTokenizer, RefusesInputWithoutWordsAndBadRecords) {
  const TempFolder folder;
  write_text_file(folder / "empty.jsonl", "{\"text\": \"\"}\n");
  write_text_file(folder / "other.jsonl", "{\"text\": \"good\"}\n{\"content\": \"x\"}\n");
  EXPECT_EQ(fault_of(Fault::kData, {"--input", (folder / "empty.jsonl").string()}),
            "train-tokenizer: no word in the input; is it empty?");
  EXPECT_THAT(fault_of(Fault::kData, {"--input", (folder / "other.jsonl").string()}),
              HasSubstr("other.jsonl: line 2 (byte 17): no key \"text\""));
  EXPECT_THAT(fault_of(Fault::kUsage, {}), HasSubstr("no --input; give files"));
  const LearnReport skipped = learn_into(
      folder / "t", {"--input", (folder / "other.jsonl").string(), "--on-error", "skip"});
  EXPECT_EQ(skipped.bad_records, 1);
  EXPECT_EQ(skipped.documents, 1);
}

TEST(LearnTokenizer, ReplacesATokenizerOnlyWhereToldTo) {
  const TempFolder folder;
  learn_into(folder / "t", with_corpus({"--vocab-size", "300"}));
  const std::string before = read_text_file(folder / "t/tokenizer.json");
  EXPECT_THAT(message_of(Fault::kUsage,
                         [&] {
                           learn_into(folder / "t", with_corpus({"--vocab-size", "310"}));
                         }),
              HasSubstr("tokenizer.json is there already; give --overwrite, or another --save"));
  EXPECT_EQ(read_text_file(folder / "t/tokenizer.json"), before);
  learn_into(folder / "t", with_corpus({"--vocab-size", "310", "--overwrite"}));
  EXPECT_NE(read_text_file(folder / "t/tokenizer.json"), before);
}

}  // namespace
}  // namespace piton
