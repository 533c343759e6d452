// The tests of kernels can fail: an error of 1% in one output of one call is always detected.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "call_cases.h"
#include "call_runner.h"
#include "device/host_device.h"
#include "gradient_checks.h"
#include "kernels/reference/kernels.h"
#include "support/perturbed_kernels.h"

namespace piton::test {
namespace {

using Output = std::pair<std::string, std::string>;  // call, tensor

TEST(Agreement, SeesEveryOutputOfEveryCallThatIsOffByOnePercent) {
  const auto reference = make_reference_kernels();
  HostDevice device;
  const auto cases = call_cases({.dtype = DType::kF32, .row_tile = 4});
  std::set<Output> every;
  std::set<std::size_t> kinds;
  for (const CallCase& call_case : cases) {
    kinds.insert(call_case.call.index());
    for (const auto& [tensor, unused] : outputs(call_case.call)) {
      every.emplace(name(call_case.call), tensor);
    }
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<AnyKernelCall> - 1)
      << "all calls but packing have cases";
  for (const auto& [call, tensor] : every) {
    PerturbedKernels broken(*reference, call, tensor);
    CallRunner runner(broken, device);
    bool seen = false;
    for (const CallCase& call_case : cases) {
      if (name(call_case.call) == call && !agrees(call_case, runner)) seen = true;
    }
    EXPECT_TRUE(seen) << call << ", " << tensor;
    EXPECT_GT(broken.perturbed(), 0) << call << ", " << tensor;
  }
}

// Not rotary: a linear map whose backward is the same call stays its own adjoint with the error.
TEST(GradientChecks, SeeEveryOutputThatTheyUseOffByOnePercent) {
  const auto reference = make_reference_kernels();
  const std::vector<std::pair<std::string, std::vector<Output>>> expected{
      {"linear",
       {{"linear forward", "y"},
        {"linear backward input", "dx"},
        {"linear backward weight", "dweight"},
        {"linear backward weight", "dbias"}}},
      {"linear, activated",
       {{"linear forward", "y"},
        {"linear forward", "preactivation"},
        {"activation backward", "dx"}}},
      {"layer norm",
       {{"norm forward", "y"},
        {"norm forward", "mean"},
        {"norm forward", "rstd"},
        {"norm backward", "dx"},
        {"norm backward", "dgain"},
        {"norm backward", "dbias"}}},
      {"rms norm, residual",
       {{"norm forward", "y"}, {"norm forward", "rstd"}, {"norm backward", "dx"}}},
      {"attention, causal",
       {{"attention forward", "out"},
        {"attention forward", "lse"},
        {"attention backward", "dq"},
        {"attention backward", "dk"},
        {"attention backward", "dv"}}},
      {"attention, dropout", {{"attention forward", "out"}, {"attention backward", "dv"}}},
      {"activation 0 gated false", {{"activation forward", "y"}, {"activation backward", "dx"}}},
      {"activation 1 gated true", {{"activation backward", "dup"}}},
      {"activation 2 gated true", {{"activation backward", "dx"}}},
      {"dropout add",
       {{"dropout add forward", "y"},
        {"dropout add backward", "dx"},
        {"dropout add backward", "dbias"}}},
      {"embedding", {{"embedding forward", "y"}, {"embedding backward", "dtable"}}},
      {"loss",
       {{"loss statistics", "statistics"},
        {"loss combine", "loss"},
        {"loss combine", "lse"},
        {"loss combine", "sum"},
        {"loss backward", "dlogits"}}},
      {"routing, scores 0 normalized false balance 0",
       {{"route tokens", "weights"}, {"route backward", "dlogits"}}},
      {"routing, scores 0 normalized true balance 0.6",
       {{"route tokens", "balance"}, {"route backward", "dlogits"}}},
      {"router z-loss", {{"router z-loss", "sum"}, {"router z-loss backward", "dlogits"}}},
      {"combined experts",
       {{"combine experts", "y"},
        {"combine experts backward", "drows"},
        {"combine experts backward", "dweights"}}},
      {"head parts", {{"join heads", "y"}, {"split heads", "own"}, {"split heads", "shared"}}},
      {"linear of experts",
       {{"linear forward", "y"},
        {"linear backward input", "dx"},
        {"linear backward weight", "dweight"}}}};
  std::map<std::string, GradientCheck> checks;
  for (GradientCheck& check : gradient_checks()) checks[check.name] = check;
  for (const auto& [name, seen] : expected) {
    ASSERT_TRUE(checks.contains(name)) << name;
    for (const auto& [call, tensor] : seen) {
      PerturbedKernels broken(*reference, call, tensor);
      EXPECT_FALSE(checks.at(name).run(broken)) << name << ": " << call << ", " << tensor;
    }
  }
}

}  // namespace
}  // namespace piton::test
