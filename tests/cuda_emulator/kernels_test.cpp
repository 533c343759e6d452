// Every call of the CUDA back end on the emulator, against the reference.
#include "kernels/cuda/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cuda_emulator/guarded_kernels.h"
#include "device/cuda/device.h"
#include "ops/attention_cases.h"
#include "ops/call_cases.h"
#include "ops/call_runner.h"
#include "support/errors.h"
#include "support/sampled.h"

namespace piton::cuda {
namespace {

using test::CallCase;

// Attention takes no fp64, and updates compute in fp32 whatever the weights' dtype is.
bool takes_fp64(const KernelCall& call) {
  for (const std::string_view kind : {"attention", "adamw", "sgd", "update"}) {
    if (name(call).find(kind) != std::string_view::npos) return false;
  }
  return true;
}

class EmulatedKernels : public testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  EmulatedKernels()
      : device_(make_device()), kernels_(make_kernels(*device_)), guarded_(*kernels_) {}

  test::CaseOptions options() const {
    // Rows around the edges of a tile of 256 would be most of the time; the products are not ours.
    return {.dtype = std::get<0>(GetParam()),
            .awkward = std::get<1>(GetParam()),
            .row_tile = 4,
            .codes = kernels_->reads_codes()};
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Kernels> kernels_;
  emulator::GuardedKernels guarded_;
};

// Biases of distances, prefixes, and residual streams in fp32 next to narrower types are refused.
bool is_refused(const KernelCall& call) {
  bool found = false;
  const std::string_view name = piton::name(call);
  const bool attention = name.find("attention") != std::string_view::npos;
  const bool stream = name.starts_with("norm") || name.starts_with("dropout add");
  std::set<DType> dtypes;
  for_each_tensor(call, [&](std::string_view tensor, const Tensor& given, Access) {
    found = found || (attention && (tensor == "bias" || tensor == "query_reach"));
    if (stream && given.ndim() == 2) dtypes.insert(given.dtype());
  });
  return found || dtypes.size() > 1;
}

TEST_P(EmulatedKernels, AgreeWithTheReferenceOnEveryCall) {
  std::vector<CallCase> cases = test::call_cases(options());
  std::erase_if(cases, [](const CallCase& one) { return is_refused(one.call); });
  if (options().dtype == DType::kF64) {
    std::erase_if(cases, [](const CallCase& one) { return !takes_fp64(one.call); });
  }
  test::expect_agreement(guarded_, *device_, cases);
}

TEST_P(EmulatedKernels, AgreeAtTheEdgesOfTilesOfAttention) {
  if (options().dtype == DType::kF64) GTEST_SKIP() << "attention takes no fp64";
  test::expect_agreement(guarded_, *device_, test::attention_edge_cases(options()));
}

// The other three types by night.
const std::vector<std::tuple<DType, bool>> kTypes = {
    {DType::kBF16, true}, {DType::kF32, false}, {DType::kF16, true}, {DType::kF64, true}};
INSTANTIATE_TEST_SUITE_P(Types, EmulatedKernels, testing::ValuesIn(test::sampled(kTypes, 4)),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "_awkward" : "_plain");
                         });

TEST(EmulatedAttention, RefusesFp64AndWideHeads) {
  const auto device = make_device();
  const auto kernels = make_kernels(*device);
  test::CallRunner runner(*kernels, *device);
  for (const auto& [dtype, d] : {std::pair{DType::kF64, 8}, {DType::kF32, 257}}) {
    const Tensor q = host_tensor(dtype, {1, 1, 1, d});
    const AttentionForward call{.out = host_tensor(dtype, {1, 1, 1, d}),
                                .lse = host_tensor(dtype, {1, 1, 1}),
                                .q = q,
                                .k = q,
                                .v = q};
    EXPECT_THAT(message_of(Fault::kUsage, [&] { runner.run(call); }),
                testing::HasSubstr("use --kernels cpu"));
  }
}

}  // namespace
}  // namespace piton::cuda
