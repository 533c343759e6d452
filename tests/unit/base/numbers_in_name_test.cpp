#include "base/numbers_in_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace piton {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

TEST(NumbersInName, AreThoseInThePlacesOfTheForm) {
  EXPECT_THAT(numbers_in_name("layer_04-model_123.pt", "layer_{2,4}-model_{2,4}.pt"),
              Optional(ElementsAre(4, 123)));
  EXPECT_THAT(numbers_in_name("7", "{1,9}"), Optional(ElementsAre(7)));
  EXPECT_THAT(numbers_in_name("999999999x", "{1,9}x"), Optional(ElementsAre(999999999)));
  EXPECT_THAT(numbers_in_name("a.pt", "a.pt"), Optional(IsEmpty()));
}

TEST(NumbersInName, AreNotThereInAnotherName) {
  for (const char* name : {"", "rank_", "rank_1", "rank_12345", "rank_12.pt ", "rank_12xpt",
                           "arank_12.pt", "rank_-1.pt", "rank_1 .pt", "rank_{2,4}.pt"})
    EXPECT_EQ(numbers_in_name(name, "rank_{2,4}.pt"), std::nullopt) << name;
  EXPECT_TRUE(numbers_in_name("rank_12.pt", "rank_{2,4}.pt"));
}

}  // namespace
}  // namespace piton
