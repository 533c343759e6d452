#include "tensor/rounded.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

TEST(Rounded, ToSixteenBitsGoesThroughFp32) {
  EXPECT_EQ(rounded<double>(0.1), 0.1);
  EXPECT_EQ(rounded<float>(0.1), 0.1F);
  // Above half of the last bit of bf16 by less than fp32 has: to fp32 it is a tie, which goes to
  // even.
  const double above_a_tie = 1 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(rounded<BFloat16>(above_a_tie).bits, to_bfloat16(1).bits);
  EXPECT_EQ(rounded<BFloat16>(1 + 0x1p-8 + 0x1p-20).bits, to_bfloat16(1.0078125F).bits);
  EXPECT_EQ(rounded<Float16>(1 + 0x1p-11 + 0x1p-40).bits, to_float16(1).bits);
  EXPECT_EQ(rounded<Float16>(0.5F).bits, to_float16(0.5F).bits);
}

}  // namespace
}  // namespace piton
