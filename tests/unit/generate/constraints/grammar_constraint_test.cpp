#include "generate/constraints/grammar_constraint.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/json.h"
#include "generate/constraints/run_breakers.h"
#include "text/files/byte_tokenizer.h"

namespace piton {
namespace {

// Bytes, and a few longer tokens.
class WordTokenizer : public Tokenizer {
 public:
  static constexpr std::int32_t kEnd = 256;
  const std::vector<std::string> words = {"{\"",  "\": ", "\"}",  "}}", "tr",
                                          "true", " ",    "\xC3", "é"};

  void encode(std::string_view text, EncodeOptions, std::vector<std::int32_t>& out) const override {
    for (const char c : text) out.push_back(static_cast<std::uint8_t>(c));
  }
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions) const override {
    std::string text;
    for (const std::int32_t id : ids) text += piece(id);
    return text;
  }
  std::string piece(std::int32_t id) const override {
    if (id < 256) return std::string(1, static_cast<char>(id));
    return id == kEnd ? "<end>" : words[static_cast<std::size_t>(id - 257)];
  }
  std::optional<std::int32_t> id_of(std::string_view) const override { return std::nullopt; }
  std::int64_t vocabulary_size() const override { return 257 + std::ssize(words); }
  bool is_special(std::int32_t id) const override { return id == kEnd; }
};

constexpr std::int64_t kPadded = 270;  // rows of a model without a token

GrammarConstraint constraint(ConstraintKind kind, const std::string& text) {
  const WordTokenizer tokenizer;
  return {constraint_grammar({kind, text}, "test"),
          std::make_shared<TokenTree>(tokenizer, kPadded),
          {WordTokenizer::kEnd}};
}

std::vector<bool> allowed_by(GrammarConstraint& one) {
  std::vector<bool> allowed(kPadded);
  one.allow(allowed);
  return allowed;
}

// Of bytes and longer tokens: those with the whole text, and those that end with its beginning.
TEST(RunBreakers, AreTokensWithTheTextOrABeginningOfIt) {
  const WordTokenizer tokenizer;
  const auto quotes = run_breakers(tokenizer, {"\""});
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
    EXPECT_EQ(quotes->has(id), id == '"' || (id >= 257 && id <= 259)) << id;  // {" ":_ "}
  const auto run = run_breakers(tokenizer, {"true!"});
  EXPECT_EQ(run->runs.size(), 3U);
  using Tail = std::vector<std::int32_t>;
  EXPECT_EQ(run->runs.find('t')->second, (Tail{'r', 'u', 'e', '!'}));
  EXPECT_EQ(run->runs.find(257 + 4)->second, (Tail{'u', 'e', '!'}));
  EXPECT_EQ(run->runs.find(257 + 5)->second, (Tail{'!'}));
  EXPECT_TRUE(run_breakers(tokenizer, {"<end>"})->has(WordTokenizer::kEnd));
  EXPECT_TRUE(run_breakers(tokenizer, {"none"})->runs.empty());
  const auto usual = run_breakers(tokenizer, {});
  for (const char one : std::string_view("\n:\"*")) EXPECT_TRUE(usual->has(one));
  EXPECT_EQ(usual->runs.size(), 7U);
}

TEST(GrammarConstraint, AllowsExactlyTheTokensThatContinueAText) {
  GrammarConstraint one = constraint(ConstraintKind::kChoices, R"(["true","try","a"])");
  const WordTokenizer tokenizer;
  std::vector<bool> allowed = allowed_by(one);
  for (std::int32_t id = 0; id < kPadded; ++id) {
    const bool wanted = id == 't' || id == 'a' || id == 257 + 4 || id == 257 + 5;
    EXPECT_EQ(allowed[static_cast<std::size_t>(id)], wanted) << id;
  }
  one.advance(257 + 4);  // tr
  allowed = allowed_by(one);
  EXPECT_TRUE(allowed['u']);
  EXPECT_TRUE(allowed['y']);
  EXPECT_FALSE(allowed[WordTokenizer::kEnd]);
  EXPECT_FALSE(one.done());
  one.advance('y');
  EXPECT_TRUE(one.done());
  EXPECT_TRUE(one.complete());
}

TEST(GrammarConstraint, AllowsTheEndWhereATextMayEnd) {
  GrammarConstraint one = constraint(ConstraintKind::kRegex, "a+");
  EXPECT_FALSE(allowed_by(one)[WordTokenizer::kEnd]);
  one.advance('a');
  EXPECT_FALSE(one.done());
  const std::vector<bool> allowed = allowed_by(one);
  EXPECT_TRUE(allowed[WordTokenizer::kEnd]);
  EXPECT_TRUE(allowed['a']);
  one.advance(WordTokenizer::kEnd);
  EXPECT_TRUE(one.done());
}

TEST(GrammarConstraint, EndsWhereNoTokenContinuesAText) {
  // "é" is a token, and the bytes of "à" are not all: the vocabulary here has none above 7F.
  class AsciiTokenizer final : public WordTokenizer {
   public:
    std::string piece(std::int32_t id) const override {
      return id >= 0x80 && id < 256 ? "" : WordTokenizer::piece(id);
    }
  };
  const AsciiTokenizer tokenizer;
  GrammarConstraint one(constraint_grammar({ConstraintKind::kChoices, R"(["aà"])"}, "test"),
                        std::make_shared<TokenTree>(tokenizer, kPadded), {WordTokenizer::kEnd});
  EXPECT_FALSE(one.done());
  one.advance('a');
  EXPECT_FALSE(one.done());  // C3 is a token
  one.advance(257 + 7);
  EXPECT_TRUE(one.done());
  EXPECT_FALSE(one.complete());
}

TEST(GrammarConstraint, RandomTokensGiveJson) {
  std::mt19937_64 random(3);
  const WordTokenizer tokenizer;
  for (int round = 0; round < 40; ++round) {
    GrammarConstraint one = constraint(ConstraintKind::kJsonObject, "");
    std::string text;
    for (int i = 0; !one.done() && i < 3000; ++i) {
      const std::vector<bool> allowed = allowed_by(one);
      std::vector<std::int32_t> ids;
      for (std::int32_t id = 0; id < kPadded; ++id) {
        if (allowed[static_cast<std::size_t>(id)]) ids.push_back(id);
      }
      ASSERT_FALSE(ids.empty());
      std::int32_t id = ids[random() % ids.size()];
      if (i > 40) {  // towards the end
        for (const char close : std::string_view("0]}\"")) {
          if (allowed[static_cast<std::uint8_t>(close)]) id = close;
        }
      }
      if (id != WordTokenizer::kEnd) text += tokenizer.piece(id);
      one.advance(id);
    }
    EXPECT_TRUE(one.complete());
    EXPECT_TRUE(read_json_or_discarded<nlohmann::json>(text).is_object()) << text;
  }
}

TEST(GrammarConstraint, ThatIsMalformedIsRefused) {
  const auto refused = [](ConstraintKind kind, const std::string& text) {
    try {
      constraint_grammar({kind, text}, "test");
    } catch (const Error& error) {
      return error.fault() == Fault::kUsage && std::string(error.what()).starts_with("test");
    }
    return false;
  };
  EXPECT_TRUE(refused(ConstraintKind::kChoices, "[]"));
  EXPECT_TRUE(refused(ConstraintKind::kChoices, R"(["a",""])"));
  EXPECT_TRUE(refused(ConstraintKind::kChoices, "a"));
  EXPECT_TRUE(refused(ConstraintKind::kJsonSchema, "{"));
  EXPECT_TRUE(refused(ConstraintKind::kJsonSchema, std::string(100'000, '[')));
  EXPECT_TRUE(refused(ConstraintKind::kRegex, "("));
  EXPECT_EQ(constraint_grammar({}, "test"), nullptr);
}

}  // namespace
}  // namespace piton
