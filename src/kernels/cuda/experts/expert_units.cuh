// Products of experts in fp32 and fp64, without tensor cores. Internal to this folder.
#pragma once

#include "kernels/cuda/experts/expert_tiles.cuh"
#include "kernels/cuda/launch.cuh"

namespace piton::cuda {

// A thread computes 4 x 4 elements of a tile. Sums are in the order of the depth.
template <typename T>
struct ExpertUnits {
  static constexpr int kRows = 64;
  static constexpr int kColumns = 64;
  static constexpr int kDepth = 16;
  static constexpr int kPitch = kRows + 4;  // numbers of a line [kRows] of a depth
  static constexpr std::size_t kSharedBytes = 2 * kDepth * kPitch * sizeof(T);
};

// Copies depths 0 .. kDepth - 1 of a side into [kDepth, kPitch]; zeros past `count` and `depth`.
template <bool kByDepth, typename T>
__device__ void load_units(T* to, const ExpertSide<T>& side, int count, std::int64_t depth) {
  using Units = ExpertUnits<T>;
  constexpr int kLine = kByDepth ? Units::kDepth : Units::kRows;  // neighbors in memory
#pragma unroll 2  // addresses of all would take many registers
  for (int step = 0; step < Units::kRows * Units::kDepth / kThreads; ++step) {
    const int index = step * kThreads + static_cast<int>(threadIdx.x);
    const int i = kByDepth ? index / kLine : index % kLine;
    const int d = kByDepth ? index % kLine : index / kLine;
    const std::int64_t at = kByDepth ? i * side.stride + d : d * side.stride + i;
    to[d * Units::kPitch + i] = i < count && d < depth ? side.data[at] : T{0};
  }
}

template <ExpertKind kKind, typename T>
__global__ void __launch_bounds__(kThreads, kBlocks)
    multiply_experts_on_units(ExpertMatrices<T, T> all) {
  using Units = ExpertUnits<T>;
  constexpr bool kLeftByDepth = kKind != ExpertKind::kWeight;
  constexpr bool kRightByDepth = kKind == ExpertKind::kForward;
  const auto tile = tile_of_block<kKind, Units::kRows, Units::kColumns>(all);
  if (tile.rows == 0) return;
  T* left = shared_array<T>();
  T* right = left + Units::kDepth * Units::kPitch;
  const int row = static_cast<int>(threadIdx.x) / 16 * 4;
  const int column = static_cast<int>(threadIdx.x) % 16 * 4;
  Numbers<T, 4> sums[4] = {};
  ExpertSide<T> rows = tile.left;
  ExpertSide<T> columns = tile.right;
  for (std::int64_t d = 0; d < tile.depth; d += Units::kDepth) {
    __syncthreads();
    load_units<kLeftByDepth>(left, rows, tile.rows, tile.depth - d);
    load_units<kRightByDepth>(right, columns, tile.columns, tile.depth - d);
    rows.data += kLeftByDepth ? Units::kDepth : Units::kDepth * rows.stride;
    columns.data += kRightByDepth ? Units::kDepth : Units::kDepth * columns.stride;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < Units::kDepth; ++k) {
      const auto x = load<4>(left + k * Units::kPitch + row);
      const auto w = load<4>(right + k * Units::kPitch + column);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i].at[j] = fma(x.at[i], w.at[j], sums[i].at[j]);
      }
    }
  }
  const auto end = end_of_tile(all, tile);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (row + i >= tile.rows) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (column + j < tile.columns)
        end.finish(tile.row + row + i, tile.column + column + j, sums[i].at[j]);
    }
  }
}

}  // namespace piton::cuda
