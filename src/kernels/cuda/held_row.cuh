// A row in the registers of a team of threads: a warp for rows of a few thousand bytes, else a
// block. Internal to this folder.
#pragma once

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace piton::cuda {

// Elements column .. column + kCount - 1 of a row of h; zeros past its end. `vectors`: every such
// row is one of vectors_fit(), and h a multiple of kCount.
template <int kCount, typename T>
__device__ __forceinline__ Numbers<T, kCount> load_part(const T* row, std::int64_t column,
                                                        std::int64_t h, bool vectors) {
  if (vectors) return load<kCount>(row + column);
  Numbers<T, kCount> numbers;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    numbers.at[i] = column + i < h ? row[column + i] : narrow<T>(Wide<T>{0});
  }
  return numbers;
}

template <typename T, typename S, int kCount>
__device__ __forceinline__ void store_part(T* row, std::int64_t column, std::int64_t h,
                                           bool vectors, const Numbers<S, kCount>& wide) {
  if (vectors) return store_rounded(row + column, wide);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (column + i < h) row[column + i] = narrow<T>(wide.at[i]);
  }
}

// How a team divides a row: vector v of a thread begins at column (v kTeam + its index) kCount. So
// a column has the same thread, and sums the same order, with and without vectors. A row that is
// longer than the kHeld vectors of all threads is cut into strips.
template <int kTeam, int kHeld, int kCount>
struct RowTeam {
  static constexpr std::int64_t kStrip = std::int64_t{kTeam} * kCount * kHeld;
  std::int64_t h;
  bool vectors;

  __device__ std::int64_t column(std::int64_t strip, int v) const {
    return strip + (v * kTeam + static_cast<int>(threadIdx.x) % kTeam) * std::int64_t{kCount};
  }
  // False: what was loaded for the last strip is no longer held.
  __device__ bool holds_all() const { return h <= kStrip; }

  template <typename T>
  __device__ __forceinline__ void load(const T* row, std::int64_t strip,
                                       Numbers<T, kCount> (&held)[kHeld]) const {
#pragma unroll
    for (int v = 0; v < kHeld; ++v) {
      const std::int64_t at = column(strip, v);
      if (at < h) held[v] = load_part<kCount>(row, at, h, vectors);
    }
  }
  // use(v, column) of each vector of the thread in a strip.
  template <typename Use>
  __device__ __forceinline__ void each(std::int64_t strip, Use use) const {
#pragma unroll
    for (int v = 0; v < kHeld; ++v) {
      const std::int64_t at = column(strip, v);
      if (at < h) use(v, at);
    }
  }
};

// `parts` has kWarps elements of shared memory; a team of one warp does not use it.
template <int kTeam, typename S>
__device__ __forceinline__ S team_sum(S mine, S* parts) {
  if constexpr (kTeam == kThreads) {
    return block_sum(mine, parts);
  } else {
    static_assert(kTeam == kWarp);
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      mine += __shfl_xor_sync(kAllLanes, mine, distance);
    }
    return mine;
  }
}

// The row of this thread's team.
template <int kTeam>
__device__ std::int64_t row_of_team() {
  return std::int64_t{blockIdx.x} * (kThreads / kTeam) + threadIdx.x / kTeam;
}

template <int kThreadsOfTeam, int kVectorsOfThread>
struct TeamShape {
  static constexpr int kTeam = kThreadsOfTeam;
  static constexpr int kHeld = kVectorsOfThread;
};

// use(TeamShape) with the team for rows of h, of which a thread handles `count` neighbors. Two rows
// of 4 vectors, widened, are 64 registers.
template <typename Use>
void with_team(std::int64_t h, int count, Use use) {
  const std::int64_t in_row = (h + count - 1) / count;
  if (in_row <= 4 * kWarp) return use(TeamShape<kWarp, 4>{});
  if (in_row <= kThreads) return use(TeamShape<kThreads, 1>{});
  use(TeamShape<kThreads, 4>{});
}

}  // namespace piton::cuda
