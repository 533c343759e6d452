#include "comm/gathered_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/thread_world.h"

namespace piton {
namespace {

using testing::ElementsAre;

struct Pair {
  double first = 0;
  std::int64_t second = 0;
};

TEST(GatheredValues, AreThoseOfAllRanksInTheirOrder) {
  test::run_ranks(3, [](World& world) {
    const auto ranks = make_group_of_all(world, "all");
    const int rank = world.rank();
    EXPECT_THAT(gathered_values(*ranks, 10 * rank), ElementsAre(0, 10, 20));
    const std::vector<Pair> pairs = gathered_values(*ranks, Pair{0.5 * rank, -rank});
    ASSERT_EQ(pairs.size(), 3);
    EXPECT_EQ(pairs[2].first, 1);
    EXPECT_EQ(pairs[2].second, -2);
  });
}

TEST(GatheredValues, AreTrueOnAllRanksOrNot) {
  test::run_ranks(3, [](World& world) {
    const auto ranks = make_group_of_all(world, "all");
    EXPECT_TRUE(true_on_all(*ranks, true));
    EXPECT_FALSE(true_on_all(*ranks, world.rank() != 1));
    EXPECT_FALSE(true_on_all(*ranks, false));
  });
}

}  // namespace
}  // namespace piton
