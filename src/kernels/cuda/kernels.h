// The mathematics on an NVIDIA GPU.
//
// Promises: the same call gives the same bits on the same GPU; products and sums are contracted
// only where the source says so. Every call that this back end does not have is refused with
// Error(kUsage) when it is run.
#pragma once

#include <memory>

#include "kernels/kernels.h"

namespace piton::cuda {

// Kernels for tensors of `device`, which make_device made; it is not kept.
std::unique_ptr<Kernels> make_kernels(const Device& device);

}  // namespace piton::cuda
