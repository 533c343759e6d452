// Calls on a GPU: implemented calls equal the reference, others are refused.
#include "kernels/cuda/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kernels/cuda/device.h"
#include "ops/call_cases.h"
#include "ops/call_runner.h"
#include "support/errors.h"

namespace piton::cuda {
namespace {

using test::CallCase;

bool supported(const KernelCall& call) {
  return std::set<std::string_view>{Copy::kName, Add::kName, NormForward::kName}.contains(
      name(call));
}

class CudaKernels : public testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
    device_ = make_device();
    kernels_ = make_kernels(*device_);
  }

  std::vector<CallCase> cases(bool with_support) const {
    auto all = test::call_cases({.dtype = std::get<0>(GetParam()),
                                 .awkward = std::get<1>(GetParam()),
                                 .row_tile = kernels_->row_tile()});
    std::erase_if(all, [&](const CallCase& one) { return supported(one.call) != with_support; });
    return all;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Kernels> kernels_;
};

TEST_P(CudaKernels, AgreeWithTheReference) {
  std::set<std::string_view> seen;
  test::CallRunner runner(*kernels_, *device_);
  for (const CallCase& one : cases(true)) {
    EXPECT_TRUE(test::agrees(one, runner));
    seen.insert(name(one.call));
  }
  EXPECT_EQ(seen.size(), 3U);
}

TEST_P(CudaKernels, GiveTheSameBitsEachTime) {
  test::CallRunner runner(*kernels_, *device_);
  for (const CallCase& one : cases(true)) {
    EXPECT_TRUE(test::same_bits(runner.run(one.call), runner.run(one.call))) << one.name;
  }
}

TEST_P(CudaKernels, RefuseCallsThatTheyLack) {
  test::CallRunner runner(*kernels_, *device_);
  for (const CallCase& one : cases(false)) {
    EXPECT_THAT(message_of(Fault::kUsage, [&] { runner.run(one.call); }),
                testing::HasSubstr("cuda back end has no " + std::string(name(one.call)) + " yet"));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaKernels,
                         testing::Combine(testing::Values(DType::kF64, DType::kF32, DType::kBF16,
                                                          DType::kF16),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "_awkward" : "_plain");
                         });

}  // namespace
}  // namespace piton::cuda
