// The choice of the instruction set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/processor/isa.h"

namespace piton::cpu {
namespace {

TEST(Isa, OfArmIsNeon) {
  EXPECT_THAT(isas_here(), testing::ElementsAre(Isa::kNeon));
  EXPECT_EQ(find_isa(""), Isa::kNeon);
  EXPECT_EQ(find_isa("neon"), Isa::kNeon);
  EXPECT_EQ(vector_table(Isa::kNeon).lanes, 4);
  ThreadPool threads(1);
  EXPECT_EQ(make_cpu_kernels(threads, "neon")->name(), "cpu: ARM with NEON");
}

TEST(Isa, ThatIsUnknownIsRefusedWithTheOnesThatAre) {
  try {
    find_isa("x86-64-v3");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUsage);
    EXPECT_STREQ(error.what(),
                 "cpu kernels: unknown instruction set: got \"x86-64-v3\", wanted neon");
  }
}

}  // namespace
}  // namespace piton::cpu
