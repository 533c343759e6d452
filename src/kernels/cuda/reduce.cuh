// Sums and maxima over the threads of a block. Their order depends only on sizes. Internal to this
// folder.
#pragma once

#include <limits>

#include "kernels/cuda/launch.cuh"

namespace piton::cuda {

struct Plus {
  template <typename S>
  __device__ S operator()(S a, S b) const {
    return a + b;
  }
};

struct Largest {
  template <typename S>
  __device__ S operator()(S a, S b) const {
    return b > a ? b : a;
  }
};

// Where a maximum begins. Passed to kernels as an argument: device code has no numeric_limits.
template <typename S>
constexpr S kLowest = -std::numeric_limits<S>::infinity();

// The sum (maximum, ...) of `mine` over all kThreads threads of the block; every thread gets it.
// `parts` has kWarps elements of shared memory, and may be used by the previous reduction.
template <typename S, typename Combine>
__device__ S reduced(S mine, S* parts, Combine combine) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    mine = combine(mine, __shfl_xor_sync(kAllLanes, mine, distance));
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = mine;
  __syncthreads();
  S all = parts[0];
  for (int warp = 1; warp < kWarps; ++warp) all = combine(all, parts[warp]);
  return all;
}

template <typename S>
__device__ S block_sum(S mine, S* parts) {
  return reduced(mine, parts, Plus{});
}

// The sum of all n terms, by one block.
template <typename S>
__device__ S sum_in_block(const S* terms, std::int64_t n, S* parts) {
  S sum = 0;
#pragma unroll 8
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) sum += terms[i];
  return block_sum(sum, parts);
}

}  // namespace piton::cuda
