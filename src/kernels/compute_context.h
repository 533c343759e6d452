// What computes: the kernels, the device they run on, its memory, and the stream of the calls.
#pragma once

#include "device/device.h"
#include "kernels/kernels.h"

namespace piton {

struct ComputeContext {
  Kernels& kernels;
  Device& device;
  Arena& arena;
  Stream& stream;
};

}  // namespace piton
