#include "generate/drafts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace piton {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::int32_t> looked_up(const std::vector<std::int32_t>& ids, std::int64_t most = 3) {
  const auto drafter = make_prompt_lookup(5);
  EXPECT_EQ(drafter->most(), 5);
  const DraftRequest request{.ids = ids, .most = most};
  return drafter->drafts(std::span(&request, 1)).front();
}

TEST(PromptLookup, GoesOnAsAfterTheSameTokens) {
  EXPECT_THAT(looked_up({1, 2, 3, 4, 5, 9, 1, 2}), ElementsAre(3, 4, 5));
  EXPECT_THAT(looked_up({1, 2, 3, 4, 5, 9, 1, 2}, 1), ElementsAre(3));
  EXPECT_THAT(looked_up({7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2}), ElementsAre(3, 8, 1))
      << "three tokens say more than two";
  EXPECT_THAT(looked_up({1, 2, 3, 8, 1, 2, 4, 7, 1, 2}), ElementsAre(4, 7, 1)) << "the last place";
  EXPECT_THAT(looked_up({5, 5, 5, 5}), ElementsAre(5)) << "a text that repeats a token";
  EXPECT_THAT(looked_up({9, 4, 4, 4, 4, 4, 4, 4, 4}), ElementsAre(4));
}

TEST(PromptLookup, FindsNothingInTextsWithoutRepetition) {
  EXPECT_THAT(looked_up({1}), IsEmpty());
  EXPECT_THAT(looked_up({1, 2, 3, 4}), IsEmpty());
  EXPECT_THAT(looked_up({1, 2, 3, 2}), IsEmpty()) << "one token is found by chance";
}

}  // namespace
}  // namespace piton
