// Kernels that start before the one in front of them ends (programmatic dependent launch, compute
// capability 9.0 and newer): the time that a start takes is hidden, which matters where kernels are
// short, as in decoding. Internal to this folder. The emulator of tests has its own file in the
// place of this one.
//
// A kernel that is launched with LaunchShape::early calls wait_for_previous() in all threads before
// it touches what others write, and before any return.
#pragma once

#include <cuda_runtime.h>

#include <nv/target>

namespace piton::cuda {

// Waits until the kernel in front has ended, and all before it.
__device__ inline void wait_for_previous() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.wait;" ::: "memory");))
}

// When all blocks have called this, or ended, the next kernel may start.
__device__ inline void let_next_start() {
  NV_IF_TARGET(NV_PROVIDES_SM_90, (asm volatile("griddepcontrol.launch_dependents;" ::: "memory");))
}

// Reads the 128 bytes at `data` into the cache of the device. It may be called before
// wait_for_previous(): the cache is one for all multiprocessors.
__device__ inline void prefetch(const void* data) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(data));
}

}  // namespace piton::cuda
