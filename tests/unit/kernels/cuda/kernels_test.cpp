// Every call on a GPU against the reference. Without a GPU the same cases run on the emulator
// (tests/cuda_emulator).
#include "kernels/cuda/kernels.h"

#include <gtest/gtest.h>

#include "device/cuda/device.h"
#include "ops/attention_cases.h"
#include "ops/call_cases.h"
#include "ops/call_runner.h"

namespace piton::cuda {
namespace {

using test::CallCase;

class CudaKernels : public testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
    device_ = make_device();
    kernels_ = make_kernels(*device_);
  }

  // Attention takes no fp64, and updates compute in fp32 whatever the weights' dtype is.
  std::vector<CallCase> cases() const {
    const test::CaseOptions options{.dtype = std::get<0>(GetParam()),
                                    .awkward = std::get<1>(GetParam()),
                                    .row_tile = kernels_->row_tile(),
                                    .codes = kernels_->reads_codes(),
                                    .latents = kernels_->attends_to_latents(512, 64)};
    std::vector<CallCase> all = test::call_cases(options);
    // Tensor cores cut sums off instead of rounding them, which is twice the error.
    for (CallCase& one : all) {
      one.terms *= 2;
      // In FP8 they keep some 13 bits of a sum (measured on an H200: 2^-11 of its largest terms).
      if (one.name.find("FP8") != std::string::npos) {
        one.narrowest = DType::kF16;
        one.rounded_terms = one.terms;
      }
    }
    if (options.dtype == DType::kF64) {
      std::erase_if(all, [](const CallCase& one) {
        const auto is = [&](std::string_view kind) {
          return name(one.call).find(kind) != std::string_view::npos;
        };
        return is("attention") || is("adamw") || is("sgd") || is("update");
      });
      return all;
    }
    for (CallCase& edge : test::attention_edge_cases(options)) all.push_back(std::move(edge));
    return all;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Kernels> kernels_;
};

TEST_P(CudaKernels, AgreeWithTheReference) { test::expect_agreement(*kernels_, *device_, cases()); }

TEST_P(CudaKernels, GiveTheSameBitsEachTime) {
  test::CallRunner runner(*kernels_, *device_);
  for (const CallCase& one : cases()) {
    EXPECT_TRUE(test::same_bits(runner.run(one.call), runner.run(one.call))) << one.name;
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
