// A NaN or an infinity in an operand appears in the same output elements as in the reference:
// padding, masked lanes and skipped products neither hide nor spread it. Training detects
// non-finite gradients by this and skips the step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/threads.h"
#include "call_cases.h"
#include "call_runner.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "support/instruction_sets.h"
#include "support/sampled.h"
#include "support/tensors.h"

namespace piton::test {
namespace {

bool is_float(const Tensor& tensor) {
  return tensor.dtype() != DType::kI32 && tensor.dtype() != DType::kI64 &&
         tensor.dtype() != DType::kU8;
}

// Attention is left to its own tests: what a masked score hides is part of its contract. A dropped
// element is 0 times what it was in one back end and 0 in the other. What DrawTokens does with a
// logit is tested with its values; its filters are numbers.
bool applies(const KernelCall& call) {
  if (std::holds_alternative<DrawTokens>(call) || std::holds_alternative<AttentionForward>(call) ||
      std::holds_alternative<AttentionBackward>(call) ||
      std::holds_alternative<CachedAttention>(call))
    return false;
  if (const auto* forward = std::get_if<DropoutAddForward>(&call))
    return forward->dropout.probability == 0;
  if (const auto* backward = std::get_if<DropoutAddBackward>(&call))
    return backward->dropout.probability == 0;
  return true;
}

// The cpu computes rows of a text together: what is not finite may reach other rows there
// (recurrent_values_test.cpp).
bool may_spread(const KernelCall& call) { return std::holds_alternative<DeltaRuleBackward>(call); }

::testing::AssertionResult same_kinds(const KernelCall& actual, const KernelCall& expected,
                                      int* nonfinite) {
  const auto got = outputs(actual);
  const auto wanted = outputs(expected);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!is_float(wanted[i].second)) continue;
    const auto a = values(got[i].second);
    const auto b = values(wanted[i].second);
    for (std::size_t e = 0; e < b.size(); ++e) {
      *nonfinite += std::isfinite(b[e]) ? 0 : 1;
      if (std::isfinite(a[e]) == std::isfinite(b[e])) continue;
      if (may_spread(actual) && std::isfinite(b[e])) continue;
      return ::testing::AssertionFailure()
             << wanted[i].first << "[" << e << "]: got " << a[e] << ", wanted " << b[e];
    }
  }
  return ::testing::AssertionSuccess();
}

class NonFinite : public ::testing::TestWithParam<const char*> {};

TEST_P(NonFinite, NumbersComeOutWhereTheyDoOfTheReference) {
  ThreadPool threads(1);
  std::unique_ptr<Kernels> kernels;
  try {
    kernels = make_cpu_kernels(threads, GetParam());
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  HostDevice device;
  CallRunner runner(*kernels, device);
  int nonfinite = 0;
  int number = 0;  // by day a third of the cases, others of each type
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const CallCase& call_case : call_cases({.dtype = dtype, .row_tile = 4})) {
      if (!applies(call_case.call) || number++ % one_of(3) != 0) continue;
      for_each_tensor(
          call_case.call, [&](std::string_view tensor_name, const Tensor& tensor, Access access) {
            if (access == Access::kWrite || !is_float(tensor) || tensor.elements() == 0) return;
            const std::int64_t place = offsets(tensor).back();
            const double kept = value_at(tensor, place);
            for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
              set_value(tensor, place, bad);
              const KernelCall expected = run_reference(call_case.call);
              for (const WeightUse use : {WeightUse::kPlain, WeightUse::kPacked}) {
                if (use == WeightUse::kPacked && !runner.packs(call_case.call)) continue;
                EXPECT_TRUE(same_kinds(runner.run(call_case.call, use), expected, &nonfinite))
                    << call_case.name << ", " << bad << " in " << tensor_name;
              }
            }
            set_value(tensor, place, kept);
          });
    }
  }
  EXPECT_GT(nonfinite, 10000 / one_of(4));
}

INSTANTIATE_TEST_SUITE_P(Sets, NonFinite, ::testing::ValuesIn(kInstructionSets), set_name);

}  // namespace
}  // namespace piton::test
