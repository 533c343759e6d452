// Products of experts in 16 bits, on tensor cores. Internal to this folder.
#pragma once

#include "kernels/cuda/attention/async_copy.cuh"
#include "kernels/cuda/attention/tensor_cores.cuh"
#include "kernels/cuda/experts/expert_tiles.cuh"
#include "kernels/cuda/launch.cuh"

namespace piton::cuda {

// Two tiles of each side are in shared memory: the next one is copied while one is multiplied. Of
// the eight warps, each computes 32 rows by 64 columns.
struct ExpertTensor {
  static constexpr int kRows = 128;
  static constexpr int kColumns = 128;
  static constexpr int kDepth = 32;
  static constexpr int kWarpRows = 32;
  static constexpr int kWarpColumns = 64;
  static constexpr int kInVector = 8;  // numbers of 16 bits in 16 bytes
  // Numbers from one line to the next. The 16 bytes in addition keep lines in different banks.
  static constexpr int kDepthPitch = kDepth + kInVector;
  static constexpr int kRowPitch = kRows + kInVector;
  static constexpr int kNumbers = kRows * kDepthPitch;  // of a tile; the other form has fewer
  static constexpr std::size_t kSharedBytes = std::size_t{4} * kNumbers * 2;
  static_assert(kRows == kColumns && kDepth * kRowPitch <= kNumbers);
  static_assert(kRows / kWarpRows * (kColumns / kWarpColumns) == kWarps);
};

// Copies depths 0 .. kDepth - 1 of a side: into lines of depths, [kRows, kDepthPitch], or of rows,
// [kDepth, kRowPitch]; zeros past `count` and `depth`. It is there after wait_for_copies() and a
// barrier.
template <bool kByDepth, typename T>
__device__ void load_sides(T* to, const ExpertSide<T>& side, int count, std::int64_t depth,
                           bool vectors) {
  using Tensor16 = ExpertTensor;
  constexpr int kWidth = kByDepth ? Tensor16::kDepth : Tensor16::kRows;  // of a line
  constexpr int kPitch = kByDepth ? Tensor16::kDepthPitch : Tensor16::kRowPitch;
  constexpr int kVectors = kWidth / Tensor16::kInVector;  // of a line
  const int deep = at_most(depth, Tensor16::kDepth);
  const int lines = kByDepth ? count : deep;
  const int width = kByDepth ? deep : count;
#pragma unroll 1  // addresses of all would take many registers
  for (int step = 0; step < Tensor16::kRows * Tensor16::kDepth / Tensor16::kInVector / kThreads;
       ++step) {
    const int vector = step * kThreads + static_cast<int>(threadIdx.x);
    const int line = vector / kVectors;
    const int c = vector % kVectors * Tensor16::kInVector;
    T* at = to + line * kPitch + c;
    const int left = line < lines && c < width ? at_most(width - c, Tensor16::kInVector) : 0;
    if (vectors) {
      const T* from = left > 0 ? side.data + line * side.stride + c : side.data;
      start_copy(at, from, left * static_cast<int>(sizeof(T)));
      continue;
    }
#pragma unroll 1
    for (int i = 0; i < Tensor16::kInVector; ++i)
      at[i] = i < left ? side.data[line * side.stride + c + i] : narrow<T>(0.0F);
  }
}

// The left side of a product: 16 rows from `row` and 16 depths from `d` on.
template <bool kByDepth, typename T>
__device__ void read_left_side(std::uint32_t (&pairs)[4], const T* tile, int row, int d) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  if constexpr (kByDepth) {
    load_matrices<false>(pairs,
                         tile + (row + lane % 16) * ExpertTensor::kDepthPitch + d + lane / 16 * 8);
  } else {
    load_matrices<true>(pairs, tile + (d + lane % 8 + lane / 16 * 8) * ExpertTensor::kRowPitch +
                                   row + lane / 8 % 2 * 8);
  }
}

// The right side of two products: 16 depths from `d`, and eight columns from `column` and from
// `column` + 8 on.
template <bool kByDepth, typename T>
__device__ void read_right_sides(std::uint32_t (&pairs)[4], const T* tile, int column, int d) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  if constexpr (kByDepth) {
    load_matrices<false>(
        pairs, tile + (column + lane % 8 + lane / 16 * 8) * ExpertTensor::kDepthPitch + d +
                   lane / 8 % 2 * 8);
  } else {
    load_matrices<true>(pairs,
                        tile + (d + lane % 16) * ExpertTensor::kRowPitch + column + lane / 16 * 8);
  }
}

using WarpSums = float[ExpertTensor::kWarpRows / 16][ExpertTensor::kWarpColumns / 8][4];

// Adds the product of two tiles to the sums of this warp.
template <bool kLeftByDepth, bool kRightByDepth, typename T>
__device__ void multiply_sides(WarpSums& sums, const T* left, const T* right, int row, int column) {
#pragma unroll
  for (int d = 0; d < ExpertTensor::kDepth; d += 16) {
    std::uint32_t rows[ExpertTensor::kWarpRows / 16][4];
#pragma unroll
    for (int i = 0; i < ExpertTensor::kWarpRows / 16; ++i)
      read_left_side<kLeftByDepth>(rows[i], left, row + 16 * i, d);
#pragma unroll
    for (int j = 0; j < ExpertTensor::kWarpColumns / 8; j += 2) {
      std::uint32_t columns[4];
      read_right_sides<kRightByDepth>(columns, right, column + 8 * j, d);
#pragma unroll
      for (int i = 0; i < ExpertTensor::kWarpRows / 16; ++i) {
        multiply_fragments<T>(sums[i][j], rows[i], columns);
        multiply_fragments<T>(sums[i][j + 1], rows[i], columns + 2);
      }
    }
  }
}

// Two neighbors of a row of the result.
template <typename T, typename Y>
__device__ void finish_pair(const ExpertMatrices<T, Y>& all, const ExpertTile<T>& tile, int row,
                            int column, float first, float second) {
  if (row >= tile.rows || column >= tile.columns) return;
  const LinearEnd<Y, T> end = end_of_tile(all, tile);
  if (all.end_vectors && column + 1 < tile.columns) {
    end.finish(tile.row + row, tile.column + column, Numbers<float, 2>{{first, second}});
    return;
  }
  end.finish(tile.row + row, tile.column + column, first);
  if (column + 1 < tile.columns) end.finish(tile.row + row, tile.column + column + 1, second);
}

template <ExpertKind kKind, typename T, typename Y>
__global__ void __launch_bounds__(kThreads, kBlocks)
    multiply_experts_on_tensor_cores(ExpertMatrices<T, Y> all) {
  using Tensor16 = ExpertTensor;
  constexpr bool kLeftByDepth = kKind != ExpertKind::kWeight;
  constexpr bool kRightByDepth = kKind == ExpertKind::kForward;
  const auto tile = tile_of_block<kKind, Tensor16::kRows, Tensor16::kColumns>(all);
  if (tile.rows == 0) return;
  T* tiles = shared_array<T>();  // left, right; the next left, right
  ExpertSide<T> left = tile.left;
  ExpertSide<T> right = tile.right;
  const auto load_next = [&](std::int64_t d) {
    T* to = tiles + d / Tensor16::kDepth % 2 * 2 * Tensor16::kNumbers;
    load_sides<kLeftByDepth>(to, left, tile.rows, tile.depth - d, all.left_vectors);
    load_sides<kRightByDepth>(to + Tensor16::kNumbers, right, tile.columns, tile.depth - d,
                              all.right_vectors);
    left.data += kLeftByDepth ? Tensor16::kDepth : Tensor16::kDepth * left.stride;
    right.data += kRightByDepth ? Tensor16::kDepth : Tensor16::kDepth * right.stride;
  };
  constexpr int kAcross = Tensor16::kColumns / Tensor16::kWarpColumns;
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int row = warp / kAcross * Tensor16::kWarpRows;
  const int column = warp % kAcross * Tensor16::kWarpColumns;
  const bool computes = row < tile.rows && column < tile.columns;
  WarpSums sums = {};
  if (tile.depth > 0) load_next(0);
#pragma unroll 1
  for (std::int64_t d = 0; d < tile.depth; d += Tensor16::kDepth) {
    wait_for_copies();
    __syncthreads();
    if (d + Tensor16::kDepth < tile.depth) load_next(d + Tensor16::kDepth);
    const T* from = tiles + d / Tensor16::kDepth % 2 * 2 * Tensor16::kNumbers;
    if (computes)
      multiply_sides<kLeftByDepth, kRightByDepth>(sums, from, from + Tensor16::kNumbers, row,
                                                  column);
  }
  const int lane = static_cast<int>(threadIdx.x % kWarp);
#pragma unroll
  for (int i = 0; i < Tensor16::kWarpRows / 16; ++i) {
#pragma unroll
    for (int j = 0; j < Tensor16::kWarpColumns / 8; ++j) {
      const int r = row + 16 * i + lane / 4;
      const int c = column + 8 * j + lane % 4 * 2;
      finish_pair(all, tile, r, c, sums[i][j][0], sums[i][j][1]);
      finish_pair(all, tile, r + 8, c, sums[i][j][2], sums[i][j][3]);
    }
  }
}

}  // namespace piton::cuda
