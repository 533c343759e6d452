#include "text/scratch_pool.h"

#include <gtest/gtest.h>

#include <thread>

namespace piton {
namespace {

TEST(ScratchPool, GivesAThreadWhatItHadLastAndMakesNoMoreThanAreInUseAtOnce) {
  ScratchPool<int> pool;
  int made = 0;
  const auto make = [&] { return std::make_unique<int>(made++); };
  const auto borrowed = [&] { return *ScratchPool<int>::Loan(pool, make); };
  {
    const ScratchPool<int>::Loan mine(pool, make);
    std::jthread([&] { EXPECT_EQ(borrowed(), 1); }).join();
  }
  EXPECT_EQ(borrowed(), 0);
  std::jthread([&] {
    // The thread of 1 is gone.
    EXPECT_EQ(borrowed(), 1);
    std::jthread([&] { EXPECT_EQ(borrowed(), 0); }).join();
    EXPECT_EQ(borrowed(), 1);
  }).join();
  EXPECT_EQ(made, 2);
}

}  // namespace
}  // namespace piton
