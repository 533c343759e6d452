#include "session/embedding_noise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace piton {
namespace {

using testing::Each;
using testing::ElementsAre;

// Two samples: texts of 3 and 1 tokens with 1 of padding, and one of 5, whose segment has the
// number of the last one.
TEST(NoiseBounds, AreOfTheTokensOfEachTextAndZeroForPadding) {
  const MicroBatch batch{
      .samples = 2, .sequence = 5, .segments = {0, 0, 0, 1, kPaddingSegment, 2, 2, 2, 2, 2}};
  const float three = 0.5F, one = static_cast<float>(6 / std::sqrt(48.0));
  const float five = static_cast<float>(6 / std::sqrt(240.0));
  EXPECT_THAT(noise_bounds({.samples = 1, .sequence = 3}, 6, 48), Each(three));
  EXPECT_THAT(noise_bounds(batch, 6, 48),
              ElementsAre(three, three, three, one, 0, five, five, five, five, five));
}

}  // namespace
}  // namespace piton
