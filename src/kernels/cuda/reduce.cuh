// Sums and maxima over the threads of a block, and over the rows of a matrix. Their order depends
// only on sizes. Internal to this folder.
#pragma once

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

// sums[column] += sum over rows of body(row, column), which is of type S. A block computes kWarp
// columns: each of its warps sums every kWarps-th row, and the warps are added in order.
template <typename S, typename Body>
struct ColumnSums {
  Body body;
  S* sums;
  std::int64_t n;
  std::int64_t columns;
};

template <typename S, typename Body>
__global__ void __launch_bounds__(kThreads, kBlocks) add_column_sums(ColumnSums<S, Body> all) {
  S* parts = shared_array<S>();  // [kWarps, kWarp]
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + threadIdx.x % kWarp;
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  S sum = 0;
  if (column < all.columns) {
    for (std::int64_t row = warp; row < all.n; row += kWarps) sum += all.body(row, column);
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  if (warp != 0 || column >= all.columns) return;
  for (int other = 1; other < kWarps; ++other) sum += parts[other * kWarp + threadIdx.x];
  all.sums[column] += sum;
}

template <typename S, typename Body>
void launch_column_sums(std::string_view name, const ColumnSums<S, Body>& all,
                        cudaStream_t stream) {
  if (all.columns == 0 || all.n == 0) return;
  launch(name, add_column_sums<S, Body>,
         {.blocks = {static_cast<unsigned>((all.columns + kWarp - 1) / kWarp), 1, 1},
          .shared_bytes = kThreads * sizeof(S)},
         all, stream);
}

}  // namespace piton::cuda
