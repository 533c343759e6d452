// Copies from global to shared memory that run while the thread continues (PTX ISA, cp.async).
// Internal to this folder. The emulator of tests has its own file in the place of this one.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace piton::cuda {

// Starts to copy `bytes`, 0 to 16, to 16 bytes of shared memory, whose rest becomes 0. Both
// addresses are aligned to 16 bytes; with 0 bytes, `from` may be any aligned address. The copy has
// ended for this thread after wait_for_copies(), and for the block after a barrier behind that.
template <typename T>
__device__ void start_copy(T* to, const T* from, int bytes) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes)
               : "memory");
}

// Ends a batch of copies of this thread, which may have none.
__device__ inline void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all batches of this thread but the last kLeft.
template <int kLeft>
__device__ void wait_for_batches() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Waits for all copies of this thread.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace piton::cuda
