// Runs a call with host tensors on any back end and device, and copies the results back.
#pragma once

#include <gtest/gtest.h>

#include "call_cases.h"
#include "device/device.h"
#include "kernels/kernels.h"

namespace piton::test {

// How a linear's weight reaches the back end.
enum class WeightUse { kPlain, kPacked };

class CallRunner {
 public:
  CallRunner(Kernels& kernels, Device& device) : kernels_(kernels), device_(device) {}

  // The call with its tensors as they are afterwards, on the host; `call` itself is left alone.
  // With kPacked the weight of a linear is packed first, where the back end packs such a weight.
  KernelCall run(const KernelCall& call, WeightUse use = WeightUse::kPlain);

  // Whether run() would pack something.
  bool packs(const KernelCall& call) const;

  Kernels& kernels() { return kernels_; }

 private:
  Kernels& kernels_;
  Device& device_;
};

// Success if `kernels` writes what the reference writes, within tolerance, and nothing else: inputs
// and the gaps between rows keep their bits.
::testing::AssertionResult agrees(const CallCase& call_case, CallRunner& tested,
                                  WeightUse use = WeightUse::kPlain);

// What run() by the reference back end gives.
KernelCall run_reference(const KernelCall& call);

// Outputs of `actual` and `expected`, two runs of the same call, in the same bits.
::testing::AssertionResult same_bits(const KernelCall& actual, const KernelCall& expected);

// Every written or updated tensor that is given, by name.
std::vector<std::pair<std::string, Tensor>> outputs(const KernelCall& call);

// Runs every case both plain and packed and reports each that disagrees.
void expect_agreement(Kernels& kernels, Device& device, const std::vector<CallCase>& cases);

}  // namespace piton::test
