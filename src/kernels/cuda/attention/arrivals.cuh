// The last of several blocks of a launch to get somewhere, which then reads what the others have
// left: a second kernel that waits for the first one is not needed. Internal to this folder.
#pragma once

#include <cuda_runtime.h>

namespace piton::cuda {

// Whether this block is the last of `blocks` to arrive at `counter`; then its threads see all that
// the threads of the others wrote before they came here. The counter is 0 before the first block
// and after the last one (CallContext::arrivals). All threads of a block come; `last` is a word of
// its shared memory. The caller has to make an order of its own for sums: any block may be the
// last.
__device__ inline bool is_last_to_arrive(unsigned* counter, unsigned blocks, unsigned* last) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    *last = atomicInc(counter, blocks - 1) == blocks - 1 ? 1 : 0;
    __threadfence();
  }
  __syncthreads();
  return *last != 0;
}

}  // namespace piton::cuda
