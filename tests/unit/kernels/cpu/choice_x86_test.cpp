// The choice of the bf16 product: by processor model if it is known, otherwise by measurement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/processor/choice.h"

namespace piton::cpu {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

constexpr ProductSpeeds kDotFaster{.fma = 100e9, .dot = 200e9};
constexpr ProductSpeeds kDotSlower{.fma = 200e9, .dot = 100e9};

TEST(ProductChoice, OfAKnownFamilyDoesNotDependOnTheMeasurement) {
  for (const ProductSpeeds& speeds : {kDotFaster, kDotSlower}) {
    EXPECT_TRUE(choose_products({"AuthenticAMD", 0x19}, speeds).dot);
    EXPECT_TRUE(choose_products({"AuthenticAMD", 0x1A}, speeds).dot);
    EXPECT_FALSE(choose_products({"GenuineIntel", 6}, speeds).dot);
  }
}

TEST(ProductChoice, SaysWhyAndWhereTheMeasurementDisagrees) {
  EXPECT_EQ(choose_products({"GenuineIntel", 6}, kDotSlower).why,
            "bf16 products by fp32 multiply-adds, chosen by a table for processors of this family "
            "(GenuineIntel 6); measured here: 100 GFLOP/s a core by dot products, 200 in fp32");
  EXPECT_THAT(choose_products({"GenuineIntel", 6}, kDotFaster).why,
              EndsWith("200 GFLOP/s a core by dot products, 100 in fp32, which says otherwise"));
  EXPECT_EQ(choose_products({"Unknown", 1}, kDotFaster).why,
            "bf16 products by dot products, chosen by a measurement: 200 GFLOP/s a core by dot "
            "products, 100 in fp32");
}

TEST(ProductChoice, OfAnUnknownFamilyIsTheFasterOne) {
  EXPECT_TRUE(choose_products({"AuthenticAMD", 0x1B}, kDotFaster).dot);
  EXPECT_FALSE(choose_products({"GenuineIntel", 19}, kDotSlower).dot);
  EXPECT_THAT(choose_products({"HygonGenuine", 24}, kDotFaster).why,
              StartsWith("bf16 products by dot products"));
}

TEST(ProductChoice, OfAnUnknownFamilyIsFp32WhereTheTwoAreAlike) {
  EXPECT_FALSE(choose_products({"Unknown", 1}, {.fma = 100e9, .dot = 110e9}).dot);
}

TEST(ProductChoice, IsNoneWhereASetIsForcedOrHasOneWay) {
  EXPECT_TRUE(choose_products(Isa::kV4Bf16, true).dot);
  EXPECT_TRUE(choose_products(Isa::kV4Bf16, true).why.empty());
  EXPECT_FALSE(choose_products(Isa::kV3, false).dot);
  EXPECT_TRUE(choose_products(Isa::kAmx, false).why.empty());
}

TEST(ProductChoice, OfThisMachineIsTheSameEachTime) {
  if (best_isa() < Isa::kV4Bf16) GTEST_SKIP() << "this machine has no bf16 dot product";
  const Processor processor = this_processor();
  EXPECT_FALSE(processor.vendor.empty());
  const bool first = choose_products(Isa::kV4Bf16, false).dot;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(choose_products(Isa::kV4Bf16, false).dot, first);
}

}  // namespace
}  // namespace piton::cpu
