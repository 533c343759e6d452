// The same tests for every back end: each call against the reference, and the promises of the
// interface about threads and slices.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/threads.h"
#include "call_cases.h"
#include "call_runner.h"
#include "decoding_cases.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/experts.h"
#include "kernels/reference/kernels.h"
#include "support/compare.h"
#include "support/instruction_sets.h"
#include "support/perturbed_kernels.h"

namespace piton::test {
namespace {

class CpuKernels : public ::testing::TestWithParam<std::tuple<DType, bool>> {
 protected:
  CpuKernels()
      : one_thread_(1),
        two_threads_(2),
        one_(make_cpu_kernels(one_thread_, test::chosen_isa())),
        two_(make_cpu_kernels(two_threads_, test::chosen_isa())) {}

  std::vector<CallCase> cases() const {
    return call_cases({.dtype = std::get<0>(GetParam()),
                       .awkward = std::get<1>(GetParam()),
                       .row_tile = one_->row_tile()});
  }

  ThreadPool one_thread_;
  ThreadPool two_threads_;
  std::unique_ptr<Kernels> one_;
  std::unique_ptr<Kernels> two_;
  HostDevice device_;
};

TEST_P(CpuKernels, AgreeWithTheReferenceOnEveryCall) { expect_agreement(*two_, device_, cases()); }

TEST_P(CpuKernels, GiveTheSameBitsOnOneThreadAndOnTwo) {
  CallRunner one(*one_, device_);
  CallRunner two(*two_, device_);
  for (const CallCase& call_case : cases()) {
    for (const WeightUse use : {WeightUse::kPlain, WeightUse::kPacked}) {
      EXPECT_TRUE(same_bits(two.run(call_case.call, use), one.run(call_case.call, use)))
          << call_case.name;
    }
  }
}

TEST_P(CpuKernels, GiveTheBitsOfSeparateCallsWhereOneCallDoesSeveral) {
  CallRunner runner(*two_, device_);
  for (const CallCase& call_case :
       decoding_cases({.dtype = std::get<0>(GetParam()), .awkward = std::get<1>(GetParam())})) {
    EXPECT_TRUE(same_bits(runner.run(call_case.call), run_in_parts(call_case.call, runner)))
        << call_case.name;
  }
}

// Cuts the rows of a linear's inputs and outputs at `cut`.
template <typename Call>
Call rows_of(const Call& call, std::int64_t begin, std::int64_t size) {
  Call part = call;
  part.tensors(part, [&](std::string_view name, Tensor& tensor, Access) {
    if (tensor.defined() && !name.starts_with("weight") && name != "bias")
      tensor = tensor.slice(0, begin, size);
  });
  return part;
}

TEST_P(CpuKernels, GiveTheSameBitsForRowsCutAtTileEdgesAndForAll) {
  const std::int64_t tile = two_->row_tile();
  CallRunner runner(*two_, device_);
  int cuts = 0;
  const auto expect_equal = [&](const auto& call, const std::string& case_name) {
    if (call.first_rows.defined()) return;  // rows of an expert are not cut
    for (const WeightUse use : {WeightUse::kPlain, WeightUse::kPacked}) {
      const std::int64_t n = outputs(call)[0].second.dim(0);
      const auto whole = outputs(runner.run(call, use));
      for (std::int64_t begin = 0; begin < n; begin += tile) {
        const std::int64_t size = std::min(tile, n - begin);
        const auto part = outputs(runner.run(rows_of(call, begin, size), use));
        for (std::size_t i = 0; i < part.size(); ++i) {
          EXPECT_TRUE(bit_equal(part[i].second, whole[i].second.slice(0, begin, size)))
              << case_name << ", " << part[i].first << ", rows from " << begin;
        }
        ++cuts;
      }
    }
  };
  for (const CallCase& call_case : cases()) {
    if (const auto* forward = std::get_if<LinearForward>(&call_case.call)) {
      expect_equal(*forward, call_case.name);
    } else if (const auto* backward = std::get_if<LinearBackwardInput>(&call_case.call)) {
      expect_equal(*backward, call_case.name);
    }
  }
  EXPECT_GT(cuts, 8);
}

// Few rows of several experts are one division among threads.
TEST_P(CpuKernels, GiveTheRowsOfAnExpertTheBitsOfItsMatrixAlone) {
  CallRunner runner(*two_, device_);
  int experts = 0;
  for (const CallCase& call_case : cases()) {
    const auto* call = std::get_if<LinearForward>(&call_case.call);
    if (call == nullptr || !call->first_rows.defined()) continue;
    const auto* first = call->first_rows.data<std::int32_t>();
    for (const WeightUse use : {WeightUse::kPlain, WeightUse::kPacked}) {
      const auto whole = outputs(runner.run(*call, use));
      for (std::int64_t i = 0; i + 1 < call->first_rows.dim(0); ++i) {
        const PartOfExpert rows{i, first[i], first[i + 1] - first[i]};
        if (rows.size == 0) continue;
        const auto part = outputs(runner.run(part_of(*call, rows), use));
        EXPECT_TRUE(bit_equal(part[0].second, whole[0].second.slice(0, rows.begin, rows.size)))
            << call_case.name << ", expert " << i;
        ++experts;
      }
    }
  }
  EXPECT_GT(experts, 8);
}

std::string parameter_name(const ::testing::TestParamInfo<std::tuple<DType, bool>>& info) {
  return std::string(name(std::get<0>(info.param))) + (std::get<1>(info.param) ? "_awkward" : "");
}

INSTANTIATE_TEST_SUITE_P(DTypes, CpuKernels,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16,
                                                              DType::kF16),
                                            ::testing::Bool()),
                         parameter_name);

// The sets that this machine has; the others are skipped by name.
class CpuInstructionSet : public ::testing::TestWithParam<const char*> {};

TEST_P(CpuInstructionSet, AgreesWithTheReferenceOnEveryCall) {
  ThreadPool threads(1);
  std::unique_ptr<Kernels> kernels;
  try {
    kernels = make_cpu_kernels(threads, GetParam());
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  HostDevice device;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    expect_agreement(
        *kernels, device,
        call_cases({.dtype = dtype, .awkward = true, .row_tile = kernels->row_tile()}));
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, CpuInstructionSet, ::testing::ValuesIn(kInstructionSets), set_name);

TEST(CpuKernelsPacking, ThatIsOffByOnePercentIsSeen) {
  ThreadPool threads(1);
  const auto kernels = make_cpu_kernels(threads, test::chosen_isa());
  HostDevice device;
  PerturbedKernels broken(*kernels, "pack weight", "packed");
  CallRunner runner(broken, device);
  int packed = 0;
  for (const CallCase& call_case : call_cases({.dtype = DType::kF32, .row_tile = 4})) {
    if (!runner.packs(call_case.call) || outputs(call_case.call)[0].second.elements() < 20)
      continue;
    ++packed;
    EXPECT_FALSE(agrees(call_case, runner, WeightUse::kPacked)) << call_case.name;
  }
  if (packed == 0)
    GTEST_SKIP() << "this processor's matrix products take plain rows of fp32 weights";
}

}  // namespace
}  // namespace piton::test
