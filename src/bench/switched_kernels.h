// Passes the calls of a session to one of two targets: to the back end itself while steps are
// timed, or to a Kernels that observes the calls of a single step. A session cannot change its
// Kernels, so this switch is inside them.
#pragma once

#include "kernels/measured/forwarding_kernels.h"

namespace piton {

class SwitchedKernels final : public ForwardingKernels {
 public:
  explicit SwitchedKernels(Kernels& inner) : ForwardingKernels(inner), target_(&inner) {}

  void send_to(Kernels& target) { target_ = &target; }
  void send_to_inner() { target_ = &inner_; }

 private:
  void submit(const KernelCall& call, Stream& stream) override { target_->run(call, stream); }
  void submit_chains(const std::vector<CallChain>& chains, Stream& stream) override {
    target_->run_chains(chains, stream);
  }

  Kernels* target_;
};

}  // namespace piton
