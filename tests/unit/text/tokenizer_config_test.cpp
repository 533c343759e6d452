// The configuration files next to a vocabulary.
#include <gtest/gtest.h>

#include "text/files/tokenizer_folder.h"

namespace piton {
namespace {

TEST(TokenizerConfig, HasAddedTokensInTheOrderOfTheirIds) {
  // A JSON object gives its keys in the order of their characters: 10, 100, 9.
  const TokenizerConfig config = read_tokenizer_config(
      {{"tokenizer_config.json",
        R"({"added_tokens_decoder": {"9": {"content": "c"}, "100": {"content": "a"},
                                     "10": {"content": "b", "special": true}}})"}},
      "test");
  ASSERT_EQ(config.added.size(), 3U);
  EXPECT_EQ(config.added[0].id, 9);
  EXPECT_EQ(config.added[0].content, "c");
  EXPECT_TRUE(config.added[0].normalized);
  EXPECT_EQ(config.added[1].id, 10);
  EXPECT_TRUE(config.added[1].special);
  EXPECT_FALSE(config.added[1].normalized);
  EXPECT_EQ(config.added[2].id, 100);
}

}  // namespace
}  // namespace piton
