// The emulator sees faults that were put in on purpose, and no others.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "cuda_emulator/faulty.h"
#include "cuda_emulator/fragments.h"
#include "cuda_emulator/launcher.h"

namespace piton::emulator {
namespace {

using testing::HasSubstr;

class Emulator : public testing::Test {
 protected:
  Emulator() {
    std::vector<float> numbers(128);
    std::iota(numbers.begin(), numbers.end(), 0.0F);
    cudaMalloc(reinterpret_cast<void**>(&x_), 512);
    cudaMalloc(reinterpret_cast<void**>(&y_), 512);
    cudaMalloc(reinterpret_cast<void**>(&count_), 4);
    cudaMemcpyAsync(x_, numbers.data(), 512, cudaMemcpyHostToDevice, nullptr);
    cudaMemsetAsync(count_, 0, 4, nullptr);
  }
  ~Emulator() override {
    cudaFree(x_);
    cudaFree(y_);
    cudaFree(count_);
  }

  // The message of the fault; empty if there is none.
  std::string fault(Deed deed) {
    try {
      reverse(deed, x_, y_, count_);
    } catch (const Fault& found) {
      return found.what();
    }
    return {};
  }

  float* x_ = nullptr;
  float* y_ = nullptr;
  unsigned* count_ = nullptr;
};

TEST_F(Emulator, RunsAKernelWithoutFaults) {
  ASSERT_EQ(fault(Deed::kNothingWrong), "");
  for (int i = 0; i < 128; ++i) EXPECT_EQ(y_[i], static_cast<float>(i / 64 * 64 + 63 - i % 64));
}

TEST_F(Emulator, SeesAccessesOutsideOfMemory) {
  EXPECT_THAT(fault(Deed::kReadBeyondTheEnd), HasSubstr("block 1 thread 63: a read of 4 bytes"));
  EXPECT_THAT(fault(Deed::kReadBeyondTheEnd), HasSubstr("outside of all allocations"));
  EXPECT_THAT(fault(Deed::kWriteBeyondTheEnd), HasSubstr("outside of all allocations"));
  EXPECT_THAT(fault(Deed::kSharedBeyondTheEnd), HasSubstr("beyond the shared memory"));
}

TEST_F(Emulator, SeesReadsOfWhatNobodyHasWritten) {
  EXPECT_THAT(fault(Deed::kReadOfUnwritten), HasSubstr("thread 7: a read of"));
  EXPECT_THAT(fault(Deed::kSharedUnwritten), HasSubstr("nobody has written"));
}

TEST_F(Emulator, SeesRacesBetweenBarriers) {
  EXPECT_THAT(fault(Deed::kMissingBarrier),
              testing::AnyOf(HasSubstr("a race with thread"), HasSubstr("nobody has written")));
  EXPECT_THAT(fault(Deed::kWritesOfTwoBlocks), HasSubstr("a race with thread 0 of block 0"));
  EXPECT_THAT(fault(Deed::kWarpWithoutBarrier),
              testing::AnyOf(HasSubstr("a race with thread"), HasSubstr("nobody has written")));
  EXPECT_EQ(fault(Deed::kWarpWithBarrier), "");
  EXPECT_EQ(fault(Deed::kAtomics), "");
  EXPECT_EQ(*count_, 129U);  // and the 1 that two blocks wrote
}

TEST_F(Emulator, GivesNaNBeforeTheWaitForACopy) {
  EXPECT_EQ(fault(Deed::kCopyWithoutWait), "");
  for (int i = 0; i < 128; ++i) EXPECT_TRUE(std::isnan(y_[i])) << i;
  EXPECT_EQ(fault(Deed::kCopy), "");
  for (int i = 0; i < 128; ++i) EXPECT_EQ(y_[i], static_cast<float>(i / 64 * 64 + 63 - i % 64));
  EXPECT_THAT(fault(Deed::kCopyOverWhatOthersRead), HasSubstr("a race with thread"));
}

TEST_F(Emulator, OrdersBlocksByBarrierFenceAndAtomic) {
  ASSERT_EQ(fault(Deed::kLastBlock), "");
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(y_[i], static_cast<float>(i));
    EXPECT_EQ(y_[64 + i], static_cast<float>(i + 64 + i));
  }
  EXPECT_EQ(*count_, 0U);
  for (const Deed deed : {Deed::kLastBlockWithoutBarrier, Deed::kLastBlockWithoutFence,
                          Deed::kLastBlockWithoutFenceAfter}) {
    EXPECT_THAT(fault(deed), HasSubstr("of block 0, which wrote to")) << static_cast<int>(deed);
    EXPECT_EQ(*count_, 0U);
  }
}

TEST_F(Emulator, SeesBarriersAndShufflesThatNotAllThreadsReach) {
  EXPECT_THAT(fault(Deed::kBarrierOfSome), HasSubstr("not all threads reach"));
  EXPECT_THAT(fault(Deed::kShuffleOfSome), HasSubstr("not all threads reach"));
}

TEST_F(Emulator, ContinuesAfterAFault) {
  EXPECT_NE(fault(Deed::kBarrierOfSome), "");
  EXPECT_EQ(fault(Deed::kNothingWrong), "");
}

TEST(EmulatorLaunch, RefusesWhatNoGpuRuns) {
  EXPECT_THROW(launch({0, 1, 1}, {32, 1, 1}, 0, [] {}), std::invalid_argument);
  EXPECT_THROW(launch({1, 1, 1}, {2048, 1, 1}, 0, [] {}), std::invalid_argument);
  EXPECT_THROW(launch({1, 1, 1}, {32, 1, 1}, kMostSharedBytes + 1, [] {}), std::invalid_argument);
}

// Of integers, so that sums are exact.
TEST(EmulatorTensorCores, MultiplyFragmentsAsThePtxIsaOrdersThem) {
  std::vector<__nv_bfloat16> a(256), b(128);
  std::vector<float> wanted(128);
  for (int i = 0; i < 256; ++i) a[i] = __float2bfloat16_rn(static_cast<float>(i * 7 % 31 - 15));
  for (int i = 0; i < 128; ++i) b[i] = __float2bfloat16_rn(static_cast<float>(i * 11 % 29 - 14));
  for (int i = 0; i < 128; ++i) {
    for (int k = 0; k < 16; ++k)
      wanted[i] += __bfloat162float(a[i / 8 * 16 + k]) * __bfloat162float(b[k * 8 + i % 8]);
  }
  __nv_bfloat16* left = nullptr;
  __nv_bfloat16* right = nullptr;
  float* sums = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&left), 512);
  cudaMalloc(reinterpret_cast<void**>(&right), 256);
  cudaMalloc(reinterpret_cast<void**>(&sums), 512);
  cudaMemcpyAsync(left, a.data(), 512, cudaMemcpyHostToDevice, nullptr);
  cudaMemcpyAsync(right, b.data(), 256, cudaMemcpyHostToDevice, nullptr);
  for (const Reading reading :
       {Reading::kByElement, Reading::kByMatrices, Reading::kByTransposed}) {
    multiply(reading, left, right, sums);
    EXPECT_EQ(std::vector<float>(sums, sums + 128), wanted) << static_cast<int>(reading);
  }
  EXPECT_THAT([&] { multiply(Reading::kByMatricesAside, left, right, sums); },
              testing::ThrowsMessage<Fault>(HasSubstr("not aligned to 16 bytes")));
  cudaFree(left);
  cudaFree(right);
  cudaFree(sums);
}

}  // namespace
}  // namespace piton::emulator
