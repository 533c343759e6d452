#include "ops/relative_bias.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

// Numbers of T5Attention._relative_position_bucket of Transformers 5.23.0.
struct BucketCase {
  DistanceBuckets buckets;
  std::vector<std::int64_t> distances;
  std::vector<std::int32_t> wanted;
  std::int64_t weighted_sum;  // of the buckets of -600 .. 600, times 1, 2, 3, ...
};

const BucketCase kBucketCases[] = {
    {{.buckets = 32, .farthest = 128, .both_directions = true},
     {-300, -128, -127, -100, -91, -64, -33, -16, -12, -11, -8, -7,  -1,  0,
      1,    7,    8,    9,    11,  12,  16,  23,  24,  64,  91, 128, 1000},
     {15, 15, 15, 15, 15, 14, 12, 10, 9,  8,  8,  7,  1, 0,
      17, 23, 24, 24, 24, 25, 26, 27, 27, 30, 31, 31, 31},
     19105790},
    {{.buckets = 32, .farthest = 128},
     {-300, -128, -113, -112, -64, -21, -18, -16, -15, -1, 0, 5},
     {31, 31, 31, 30, 26, 18, 16, 16, 15, 1, 0, 0},
     5074855},
    {{.buckets = 8, .farthest = 12, .both_directions = true},
     {-12, -11, -5, -3, -2, 0, 1, 2, 3, 5, 6, 9, 12},
     {3, 3, 3, 2, 2, 0, 5, 6, 6, 7, 7, 7, 7},
     4321190},
    {{.buckets = 6, .farthest = 50}, {-60, -12, -11, -4, -3, -2, 0}, {5, 4, 4, 3, 3, 2, 0}, 884293},
};

TEST(DistanceBuckets, AreThoseOfTransformers) {
  for (const BucketCase& one : kBucketCases) {
    for (std::size_t i = 0; i < one.distances.size(); ++i)
      EXPECT_EQ(one.buckets.of(one.distances[i]), one.wanted[i]) << one.distances[i];
    const std::vector<std::int32_t> range = one.buckets.of_range(-600, 1201);
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < range.size(); ++i)
      sum += static_cast<std::int64_t>(i + 1) * range[i];
    EXPECT_EQ(sum, one.weighted_sum) << one.buckets.buckets;
  }
}

}  // namespace
}  // namespace piton
