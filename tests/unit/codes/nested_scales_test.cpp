// Double quantization of scales; tests/unit/codes/code_format_test.cpp compares it with
// bitsandbytes.
#include "codes/nested_scales.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace piton {
namespace {

TEST(NestedScales, StayNearTheirs) {
  std::vector<float> scales;
  for (int i = 0; i < 600; ++i) scales.push_back(1.0F + 0.5F * std::sin(static_cast<float>(i)));
  const std::vector<float> before = scales;
  nest_scales(scales);
  for (std::size_t i = 0; i < scales.size(); ++i) EXPECT_NEAR(scales[i], before[i], 0.5 / 127) << i;
}

TEST(NestedScales, ThatAreEqualStayTheSame) {
  std::vector<float> scales(300, 0.25F);
  nest_scales(scales);
  for (const float scale : scales) EXPECT_EQ(scale, 0.25F);
  nest_scales({});
}

}  // namespace
}  // namespace piton
