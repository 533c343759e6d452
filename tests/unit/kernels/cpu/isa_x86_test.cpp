// The choice of the instruction set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/processor/isa.h"

namespace piton::cpu {
namespace {

using ::testing::StartsWith;

TEST(Isa, WithoutANameIsTheBest) { EXPECT_EQ(find_isa(""), best_isa()); }

TEST(Isa, LowerThanTheBestCanBeForced) {
  EXPECT_EQ(find_isa("x86-64-v2"), Isa::kV2);
  EXPECT_EQ(find_isa("v2"), Isa::kV2);
  ThreadPool threads(1);
  EXPECT_EQ(make_cpu_kernels(threads, "x86-64-v2")->name(), "cpu: x86-64-v2");
}

TEST(Isa, ThatIsUnknownIsRefusedWithTheOnesThatAre) {
  try {
    find_isa("avx512");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUsage);
    EXPECT_STREQ(
        error.what(),
        "cpu kernels: unknown instruction set: got \"avx512\", wanted x86-64-v2, x86-64-v3, "
        "x86-64-v4, x86-64-v4-bf16 or amx");
  }
}

TEST(Isa, TablesHaveTheLanesOfTheirRegisters) {
  EXPECT_EQ(vector_table(Isa::kV2).lanes, 4);
  EXPECT_EQ(vector_table(Isa::kV3).lanes, 8);
  EXPECT_EQ(vector_table(Isa::kV4).lanes, 16);
  EXPECT_EQ(dot_table(Isa::kV4), nullptr);
}

}  // namespace
}  // namespace piton::cpu
