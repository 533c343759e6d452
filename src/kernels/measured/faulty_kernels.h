// Puts a NaN into the gradient of a weight (--fault). For test builds.
#pragma once

#include "device/device.h"
#include "kernels/measured/forwarding_kernels.h"

namespace piton {

class FaultyKernels final : public ForwardingKernels {
 public:
  // `inner` and `device` must outlive it.
  FaultyKernels(Kernels& inner, Device& device) : ForwardingKernels(inner), device_(device) {}

  // The next gradient of a linear's weight gets a NaN as its first element.
  void spoil_next_gradient() { spoils_ = true; }

 private:
  void submit(const KernelCall& call, Stream& stream) override;

  Device& device_;
  bool spoils_ = false;
};

}  // namespace piton
