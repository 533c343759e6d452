// Tokens that are no pieces of the model's text: controls, and those of the configuration.
#include "text/sentencepiece/sentencepiece_tokenizer.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace piton
