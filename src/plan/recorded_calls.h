// The kernel calls of a plan, to be timed one by one on the machine that will run them.
#pragma once

#include "kernels/measured/forwarding_kernels.h"
#include "plan/recompute_search.h"

namespace piton {

// Counts the calls of another back end, and keeps one of each without its memory.
class RecordedCalls final : public ForwardingKernels {
 public:
  explicit RecordedCalls(Kernels& inner) : ForwardingKernels(inner) {}
  const PlannedCalls& calls() const { return calls_; }

 private:
  void submit(const KernelCall& call, Stream& stream) override;

  PlannedCalls calls_;
};

// Seconds of a recorded call on `machine`: the shortest of three after a first one. Its operands
// are numbers of realistic bits, since zeros make some processors faster, and tell an update of
// weights that there is nothing to do. `cold`: they are not in the caches, as in a step of a model
// that is larger than these.
double seconds_of_call(const KernelCall& call, const Machine& machine, bool cold);

}  // namespace piton
