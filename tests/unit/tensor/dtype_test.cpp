// Rounding between element types.
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace piton {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(DTypes, HaveTheNamesThatFlagsSpell) {
  EXPECT_EQ(name(DType::kF32), "fp32");
  EXPECT_EQ(name(DType::kBF16), "bf16");
  EXPECT_EQ(size_bytes(DType::kF16), 2);
  EXPECT_EQ(size_bytes(DType::kI64), 8);
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_bfloat16(1.0F)), 1.0F);
  EXPECT_EQ(to_float(to_bfloat16(257.0F)), 256.0F);  // a tie: 256 is even
  EXPECT_EQ(to_float(to_bfloat16(259.0F)), 260.0F);
  EXPECT_EQ(to_float(to_bfloat16(257.01F)), 258.0F);
  EXPECT_EQ(to_float(to_bfloat16(-257.0F)), -256.0F);
  EXPECT_EQ(to_float(to_bfloat16(3.4e38F)), kInfinity);
  EXPECT_EQ(to_float(to_bfloat16(-kInfinity)), -kInfinity);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::nanf("")))));
  // A NaN whose bits are all in the lower half must not become infinity.
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(std::bit_cast<float>(0x7F800001U)))));
}

TEST(Float16, HoldsEveryOneOfItsValues) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 x{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(x);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(to_float16(wide)))) << bits;
    } else {
      EXPECT_EQ(to_float16(wide).bits, bits);
    }
  }
}

// By the definition: of the two neighbors the nearer, of two equally near the one with an even
// last bit. The points in between are tried a quarter, a half and three quarters of the way.
TEST(Float16, RoundsToNearestEvenBetweenAllNeighbors) {
  for (std::uint16_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = to_float(Float16{bits});
    const float high = to_float(Float16{static_cast<std::uint16_t>(bits + 1)});
    const auto even = static_cast<std::uint16_t>(bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(to_float16(low + (high - low) * 0.25F).bits, bits);
    ASSERT_EQ(to_float16(low + (high - low) * 0.5F).bits, even);
    ASSERT_EQ(to_float16(low + (high - low) * 0.75F).bits, bits + 1);
    ASSERT_EQ(to_float16(-(low + (high - low) * 0.5F)).bits, even | 0x8000);
  }
}

TEST(Float16, OverflowsToInfinityFromHalfAStepBeyondTheLargest) {
  EXPECT_EQ(to_float16(65519.0F).bits, 0x7BFF);
  EXPECT_EQ(to_float16(65520.0F).bits, 0x7C00);
  EXPECT_EQ(to_float16(-1e30F).bits, 0xFC00);
}

}  // namespace
}  // namespace piton
