// Tokens that are no pieces of the model's text: controls, and those of the configuration.
#include "text/sentencepiece/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "unit/text/charsmap_bytes.h"

namespace piton {
namespace {

using Ids = std::vector<std::int32_t>;
using Type = SentencePieceFacts::Type;

SentencePieceFacts small_model() {
  SentencePieceFacts facts;
  facts.pieces = {{"<unk>", 0, Type::kUnknown}, {"<s>", 0, Type::kControl},
                  {"</s>", 0, Type::kControl},  {"\u2581", -1, Type::kNormal},
                  {"a", -2, Type::kNormal},     {"b", -3, Type::kNormal}};
  return facts;
}

TEST(SentencePieceTokenizer, GivesAddedTokensTheirIdsBetweenStretches) {
  const SentencePieceTokenizer tokenizer(
      small_model(),
      {.add_bos = false,
       .added = {{.id = 6, .content = "<tool>"}, {.id = 7, .content = "<end>", .special = true}}},
      "", "test");
  EXPECT_EQ(tokenizer.encode("a<tool>b"), (Ids{3, 4, 6, 3, 5}));
  EXPECT_EQ(tokenizer.encode("<tool>"), Ids{6});
  const EncodeOptions parse{.parse_special_tokens = true};
  EXPECT_EQ(tokenizer.encode("<s>a<end>", parse), (Ids{1, 3, 4, 7}));
  EXPECT_EQ(tokenizer.decode(Ids{3, 4, 6, 3, 5}), "a<tool> b");
  EXPECT_EQ(tokenizer.vocabulary_size(), 8);
}

// SentencePiece's normalizer looks for them before it looks into the map of characters.
TEST(SentencePieceTokenizer, NormalizesNoPieceOfTheUser) {
  SentencePieceFacts facts = small_model();
  facts.pieces.push_back({"A", 0, Type::kUserDefined});
  facts.pieces.push_back({"BB", 0, Type::kUserDefined});
  facts.charsmap = test::charsmap_bytes({{"A", "a"}, {"B", "b"}});
  const SentencePieceTokenizer tokenizer(facts, {.add_bos = false}, "", "test");
  ASSERT_EQ(tokenizer.normalized("A"), "\u2581A");
  EXPECT_EQ(tokenizer.normalized("aABbBBB"), "\u2581aAbbBBb");
  EXPECT_EQ(tokenizer.encode("aABbBBB"), (Ids{3, 4, 6, 5, 5, 7, 5}));
  facts.pieces.resize(6);
  const SentencePieceTokenizer without(facts, {.add_bos = false}, "", "test");
  EXPECT_EQ(without.normalized("aABbBBB"), "\u2581aabbbbb");
}

TEST(SentencePieceTokenizer, OfUnigramSpellsUnknownCharactersInBytes) {
  SentencePieceFacts facts = small_model();
  facts.byte_fallback = true;
  for (int byte = 0; byte < 256; ++byte)
    facts.pieces.push_back({fmt::format("<0x{:02X}>", byte), 0, Type::kByte});
  const SentencePieceTokenizer tokenizer(facts, {.add_bos = false}, "", "test");
  const auto id = [](int byte) { return 6 + byte; };
  EXPECT_EQ(tokenizer.encode("\u00E9ab"), (Ids{3, id(0xC3), id(0xA9), 4, 5}));
  EXPECT_EQ(tokenizer.encode("ab\u4E2D"), (Ids{3, 4, 5, id(0xE4), id(0xB8), id(0xAD)}));
  EXPECT_EQ(tokenizer.encode("azb"), (Ids{3, 4, id('z'), 5}));
}

}  // namespace
}  // namespace piton
