// Declares the tensors of each call to the emulator, so that its kernels may use nothing else.
#pragma once

#include <string>

#include "cuda_emulator/launcher.h"
#include "cuda_emulator/memory.h"
#include "kernels/measured/forwarding_kernels.h"

namespace piton::emulator {

class GuardedKernels final : public ForwardingKernels {
 public:
  // `inner`: the CUDA back end on the emulator; must outlive this.
  using ForwardingKernels::ForwardingKernels;

 private:
  void submit(const KernelCall& call, Stream& stream) override {
    const struct EndOfCall {
      ~EndOfCall() { end_call(); }
    } end;
    begin_call(call);
    try {
      inner_.run(call, stream);
    } catch (const Fault& fault) {
      throw Fault(std::string(piton::name(call)) + ": " + fault.what());
    }
  }
};

}  // namespace piton::emulator
