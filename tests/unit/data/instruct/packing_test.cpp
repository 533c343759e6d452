#include "data/instruct/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace piton {
namespace {

using ::testing::ElementsAre;

TEST(BestFit, TakesTheLongestSampleThatStillFits) {
  EXPECT_THAT(best_fit({3, 7, 5, 5, 2}, 10),
              ElementsAre(ElementsAre(1, 0), ElementsAre(3, 2), ElementsAre(4)));
  EXPECT_TRUE(best_fit({}, 10).empty());
}

TEST(BestFit, PlacesEverySampleOnceAndFillsNoPackAboveItsCapacity) {
  std::mt19937 random(1);
  std::vector<std::int32_t> lengths(500);
  for (std::int32_t& length : lengths) length = 1 + static_cast<std::int32_t>(random() % 100);
  std::vector<int> seen(lengths.size());
  std::int64_t free_in_all_but_last = 0;
  const auto packs = best_fit(lengths, 100);
  for (std::size_t i = 0; i < packs.size(); ++i) {
    std::int64_t used = 0;
    for (const std::int64_t sample : packs[i]) {
      ++seen[static_cast<std::size_t>(sample)];
      used += lengths[static_cast<std::size_t>(sample)];
    }
    EXPECT_LE(used, 100);
    if (i + 1 < packs.size()) free_in_all_but_last += 100 - used;
  }
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
  const auto total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  EXPECT_LT(free_in_all_but_last, total / 20);
}

}  // namespace
}  // namespace piton
