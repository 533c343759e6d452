// ALiBi slopes against the published ones and against the rule.
#include <gtest/gtest.h>

#include <cmath>

#include "nn/attention.h"

namespace piton {
namespace {

TEST(AlibiSlopes, OfEightHeadsAreHalvesToTheEighth) {
  EXPECT_EQ(alibi_slopes(8), (std::vector<float>{1.0F / 2, 1.0F / 4, 1.0F / 8, 1.0F / 16, 1.0F / 32,
                                                 1.0F / 64, 1.0F / 128, 1.0F / 256}));
  EXPECT_EQ(alibi_slopes(1), (std::vector<float>{1.0F / 256}));
}

// transformers 5.23, build_alibi_tensor of Bloom for 12 heads: column 1 of its result. November
// 2026.
TEST(AlibiSlopes, OfTwelveHeadsAreThoseOfBloom) {
  const std::vector<double> wanted{0.5,          0.25,         0.125,        0.0625,
                                   0.03125,      0.015625,     0.0078125,    0.00390625,
                                   0.7071067811, 0.3535533905, 0.1767766952, 0.0883883476};
  const std::vector<float> slopes = alibi_slopes(12);
  ASSERT_EQ(slopes.size(), wanted.size());
  for (std::size_t head = 0; head < wanted.size(); ++head)
    EXPECT_NEAR(slopes[head], wanted[head], 1e-7) << head;
}

// The first c heads fall by one factor, the others by its square from the root of the first factor
// on.
TEST(AlibiSlopes, OfOtherCountsFollowTheRule) {
  for (const auto& [heads, lower] :
       {std::pair{40, 32}, std::pair{112, 64}, std::pair{3, 2}, std::pair{71, 64}}) {
    const std::vector<float> slopes = alibi_slopes(heads);
    ASSERT_EQ(slopes.size(), static_cast<std::size_t>(heads));
    const double factor = std::pow(2.0, -8.0 / lower);
    for (int head = 0; head < lower; ++head)
      EXPECT_NEAR(slopes[head] / std::pow(factor, head + 1), 1, 1e-6) << head;
    for (int head = lower; head < heads; ++head) {
      EXPECT_NEAR(slopes[head] / std::pow(std::sqrt(factor), 2 * (head - lower) + 1), 1, 1e-6)
          << head;
    }
  }
}

}  // namespace
}  // namespace piton
