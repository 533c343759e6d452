// The kernels of an NVIDIA GPU.
//
// The same call gives the same bits on the same GPU: no sum uses atomics. Products and sums are
// fused only where the source does it explicitly. Attention in fp64 throws Error(kUsage).
#pragma once

#include <memory>
#include <string>

#include "kernels/kernels.h"

namespace piton::cuda {

// Kernels for tensors on `device`, which make_device() made and which must outlive them. Scratch is
// memory of their own until set_workspace().
std::unique_ptr<Kernels> make_kernels(Device& device);

// Why make_kernels() would fail for want of a library of this machine; "" if it would not.
std::string library_obstacle();

}  // namespace piton::cuda
