// Which part of a product of experts a block computes. Internal to this folder.
//
// Only the device knows how many rows an expert has, so the grid is for the worst case: tile t of
// the rows of expert e is in slot first_rows[e] / kRows + e + t. Slots of different experts differ,
// because floor(a + b) + 1 >= floor(a) + ceil(b), and there are n / kRows + experts of them. Blocks
// of slots that nobody has return at once, also those of rows that are of no expert.
#pragma once

#include "kernels/cuda/bisection.cuh"
#include "kernels/cuda/linear/linear_end.cuh"

namespace piton::cuda {

enum class ExpertKind {
  kForward,  // y [n, out] = x W^T
  kInput,    // dx [n, in] = dy W
  kWeight,   // dW [m out, in] = dy^T x
};

// One side of a product. By depth: element d of row i is data[i stride + d], else
// data[d stride + i].
template <typename T>
struct ExpertSide {
  const T* data;
  std::int64_t stride;
};

// T: of both sides; Y: of the result.
template <typename T, typename Y>
struct ExpertMatrices {
  LinearEnd<Y, T> end;  // stores the result; adds the residual
  ExpertSide<T> left;   // rows of all experts
  ExpertSide<T> right;  // the weight, or (kWeight) rows of all experts
  const std::int32_t* first_rows;
  int experts;
  std::int64_t height;   // of the matrix of an expert: out
  std::int64_t columns;  // of the result
  std::int64_t depth;    // not of kWeight, where it is the number of rows of an expert
  std::int64_t column_tiles;
  std::int64_t row_tiles;  // of kWeight: of the matrix of an expert
  bool left_vectors;       // 16 bytes of a line may be loaded at once
  bool right_vectors;
  bool end_vectors;  // neighbors of the result may be stored together
  bool adds;         // of kWeight: to what the result holds
};

template <typename T>
struct ExpertTile {
  ExpertSide<T> left;   // from the first row of the tile on
  ExpertSide<T> right;  // from the first column of the tile on
  std::int64_t row;     // of the result
  std::int64_t column;
  int rows;     // at most kRows
  int columns;  // at most kColumns
  std::int64_t depth;
  std::int64_t bias;  // where the biases of the expert begin among those of all
};

// The last expert whose slots begin at or before `slot`.
template <int kRows>
__device__ int expert_of_slot(const std::int32_t* first_rows, int experts, std::int64_t slot) {
  return last_that(0, experts - 1,
                   [&](int expert) { return first_rows[expert] / kRows + expert <= slot; });
}

__device__ inline int at_most(std::int64_t count, int limit) {
  return count < limit ? static_cast<int>(count) : limit;
}

// The tile of this block; one without rows if there is nothing to compute.
template <ExpertKind kKind, int kRows, int kColumns, typename T, typename Y>
__device__ ExpertTile<T> tile_of_block(const ExpertMatrices<T, Y>& all) {
  const std::int64_t column = blockIdx.x % all.column_tiles * kColumns;
  std::int64_t slot = blockIdx.x / all.column_tiles;
  ExpertTile<T> tile{.left = all.left,
                     .right = all.right,
                     .row = 0,
                     .column = column,
                     .rows = 0,
                     .columns = at_most(all.columns - column, kColumns),
                     .depth = all.depth,
                     .bias = 0};
  if constexpr (kKind == ExpertKind::kWeight) {
    const std::int64_t expert = slot / all.row_tiles;
    const std::int64_t row = slot % all.row_tiles * kRows;
    const std::int64_t begin = all.first_rows[expert];
    tile.depth = all.first_rows[expert + 1] - begin;
    tile.row = expert * all.height + row;
    if (tile.depth > 0 || !all.adds) tile.rows = at_most(all.height - row, kRows);
    tile.left.data += begin * all.left.stride + row;
    tile.right.data += begin * all.right.stride + column;
    return tile;
  }
  const int expert = expert_of_slot<kRows>(all.first_rows, all.experts, slot);
  slot -= all.first_rows[expert] / kRows + expert;
  tile.bias = expert * all.height;
  tile.row = all.first_rows[expert] + slot * kRows;
  const std::int64_t left = all.first_rows[expert + 1] - tile.row;
  if (left <= 0) return tile;
  tile.rows = at_most(left, kRows);
  tile.left.data += tile.row * all.left.stride;
  tile.right.data += expert * all.height * all.right.stride +
                     (kKind == ExpertKind::kForward ? column * all.right.stride : column);
  return tile;
}

// The end of the rows of the tile's expert.
template <typename T, typename Y>
__device__ LinearEnd<Y, T> end_of_tile(const ExpertMatrices<T, Y>& all, const ExpertTile<T>& tile) {
  LinearEnd<Y, T> end = all.end;
  if (end.bias != nullptr) end.bias += tile.bias;
  return end;
}

}  // namespace piton::cuda
