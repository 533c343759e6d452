// Tokenizers that are the same, and the first difference of those that are not.
#include "text/compare_tokenizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "base/json.h"
#include "support/temp_folder.h"
#include "text/files/byte_tokenizer.h"
#include "text/files/tokenizer_options.h"
#include "text/special_tokens.h"

namespace piton {
namespace {

using Json = nlohmann::json;

// Words by their ids; <s> is put before a text.
Json words(std::vector<std::string> names) {
  Json vocabulary;
  for (std::size_t id = 0; id < names.size(); ++id) vocabulary[names[id]] = id;
  return {{"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "<unk>"}}},
          {"pre_tokenizer", {{"type", "Whitespace"}}},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single",
             {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
            {"pair", {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
          {"added_tokens", {{{"id", 1}, {"content", "<s>"}, {"special", true}}}}};
}

class CompareTokenizers : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> open(const Json& json) {
    write_text_file(dir_ / "tokenizer.json", json.dump());
    return open_tokenizer({.name_or_path = (dir_ / "tokenizer.json").string()});
  }
  std::string difference(const Json& a, const Json& b) {
    const auto ours = open(a);
    const auto theirs = open(b);
    return first_difference({*ours, "A"}, {*theirs, "B"});
  }

  TempFolder dir_;
};

TEST_F(CompareTokenizers, NamesTheFirstIdOfAnotherText) {
  const std::vector<std::string> names = {"<unk>", "<s>", "the", "lazy", "dog"};
  EXPECT_EQ(difference(words(names), words(names)), "");
  std::vector<std::string> swapped = {"<unk>", "<s>", "the", "dog", "lazy"};
  EXPECT_EQ(difference(words(names), words(swapped)), "id 3: \"lazy\" in A, \"dog\" in B");
  std::vector<std::string> longer = names;
  longer.push_back("fox");
  EXPECT_EQ(difference(words(names), words(longer)), "id 5: none in A, \"fox\" in B");
}

TEST_F(CompareTokenizers, FindsTextsThatAreCutInAnotherWay) {
  const std::vector<std::string> names = {"<unk>", "<s>", "the", "lazy", "dog"};
  Json lower = words(names);
  lower["normalizer"] = {{"type", "Lowercase"}};
  // "The" is a word of it in lower case.
  EXPECT_EQ(difference(words(names), lower).substr(0, 52),
            "\"The quick brown fox jumps over the lazy dog.\" is 0 ");
  Json bare = words(names);
  bare["post_processor"] = nullptr;
  EXPECT_THAT(difference(words(names), bare), testing::EndsWith("with special tokens"));
}

TEST_F(CompareTokenizers, FindsIdsThatDecodeToOtherTexts) {
  const std::vector<std::string> names = {"<unk>", "<s>", "the", "lazy", "dog"};
  Json joined = words(names);
  joined["decoder"] = {{"type", "Fuse"}};
  const auto a = open(words(names));
  const auto b = open(joined);
  const auto found = [&](const std::string& text, ComparedParts parts = {}) {
    return text_difference({*a, "A"}, {*b, "B"}, {text}, parts);
  };
  EXPECT_EQ(found("the dog"), "the ids 2 4 are \"the dog\" in A, \"thedog\" in B");
  EXPECT_EQ(found("the dog", {.decoded_text = false}), "");
  EXPECT_EQ(found("dog"), "");
  EXPECT_EQ(found("the cat"), "") << "unknown words are decoded in any way";
}

TEST_F(CompareTokenizers, UsesHundredsOfTexts) {
  const ByteTokenizer bytes;
  EXPECT_GE(varied_texts(bytes).size(), 150U);
  EXPECT_EQ(varied_texts(bytes), varied_texts(bytes));
}

TEST_F(CompareTokenizers, KnowWhatIsAroundAText) {
  const auto tokenizer = open(words({"<unk>", "<s>", "a"}));
  EXPECT_EQ(frame_of(*tokenizer).before, std::vector<std::int32_t>({1}));
  EXPECT_TRUE(frame_of(*tokenizer).after.empty());
  EXPECT_EQ(describe_frame(*tokenizer), "<s> before a text");
  EXPECT_EQ(describe_frame(ByteTokenizer()), "none");
  EXPECT_EQ(describe_rule({}, ByteTokenizer()), "");
  EXPECT_EQ(describe_rule(rule_of({.add = true}, {}), ByteTokenizer()),
            "special tokens: none, as the tokenizer has none around a text");
  EXPECT_EQ(describe_rule({}, *tokenizer),
            "special tokens: <s> before a text (the tokenizer's own setting)");
  EXPECT_EQ(describe_rule(rule_of({.add = false}, {}), *tokenizer),
            "special tokens: none (--no-add-special-tokens)");
}

}  // namespace
}  // namespace piton
