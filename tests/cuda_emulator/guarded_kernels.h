// Declares the tensors of each call to the emulator, so that its kernels may use nothing else.
#pragma once

#include <string>

#include "cuda_emulator/capture.h"
#include "cuda_emulator/launcher.h"
#include "cuda_emulator/memory.h"
#include "kernels/cuda/span_calls.h"
#include "kernels/measured/forwarding_kernels.h"

namespace piton::emulator {

class GuardedKernels final : public ForwardingKernels {
 public:
  // `inner`: the CUDA back end on the emulator; must outlive this.
  using ForwardingKernels::ForwardingKernels;

 private:
  void submit(const KernelCall& call, Stream& stream) override {
    const CallChain alone{call};
    guarded(std::span(&alone, 1), [&] { inner_.run(call, stream); });
  }

  // Chains of other calls one call after another, so that each has its own tensors.
  void submit_chains(const std::vector<CallChain>& chains, Stream& stream) override {
    if (chains.empty() || !cuda::are_span_calls(chains)) {
      ForwardingKernels::submit_chains(chains, stream);
    } else {
      guarded(chains, [&] { inner_.run_chains(chains, stream); });
    }
  }

  template <typename Run>
  static void guarded(std::span<const CallChain> chains, Run run) {
    if (captures()) return run();  // nothing is written now
    const struct EndOfCall {
      ~EndOfCall() { end_call(); }
    } end;
    begin_calls(chains);
    try {
      run();
    } catch (const Fault& fault) {
      throw Fault(std::string(piton::name(chains[0][0])) + ": " + fault.what());
    }
  }
};

}  // namespace piton::emulator
