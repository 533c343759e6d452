// Sums over the rows of a matrix. Their order depends only on sizes. Internal to this folder.
//
// A matrix is cut into chunks of rows, so that a few columns fill a GPU too. A block sums the
// columns of 32 vectors in one chunk: each of its warps every kWarps-th row, then the warps in
// order. A second launch adds the chunks, in order.
#pragma once

#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/scratch.h"

namespace piton::cuda {

// Adds to body.kSums vectors of columns, of type Body::Sum:
//   body.add<kCount>(row, column, sums) adds the terms of columns column .. column + kCount - 1 of
//   a row to sums[0] .. sums[kSums - 1], which are Numbers<Sum, kCount>. kCount is as in rows.cuh.
// Body::kRowsAtOnce rows are loaded before the first of them is added.
template <typename Body>
struct ColumnSums {
  using Sum = typename Body::Sum;
  Body body;
  Sum* sums[Body::kSums];  // [columns] each, added to; nullptr: not asked for
  Sum* partial;            // [chunks, kSums, columns], or nullptr: there is one chunk
  std::int64_t n;
  std::int64_t columns;
  std::int64_t chunk_rows;
  bool vectors;
};

// Columns column .. column + kCount - 1 of a lane.
template <int kCount, typename Body>
__device__ void sum_columns(const ColumnSums<Body>& all) {
  using Sum = typename Body::Sum;
  constexpr int kSums = Body::kSums;
  constexpr int kWidth = kWarp * kCount;
  Sum* parts = shared_array<Sum>();  // [kWarps, kSums, kWidth]
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t first = std::int64_t{blockIdx.x} * kWidth;
  const std::int64_t column = first + lane * kCount;
  const std::int64_t begin = std::int64_t{blockIdx.y} * all.chunk_rows;
  const std::int64_t end = begin + all.chunk_rows < all.n ? begin + all.chunk_rows : all.n;
  Numbers<Sum, kCount> sums[kSums] = {};
  // Vectors are only used where they fill the rows.
  if (column < all.columns) {
#pragma unroll Body::kRowsAtOnce
    for (std::int64_t row = begin + warp; row < end; row += kWarps) {
      all.body.template add<kCount>(row, column, sums);
    }
  }
#pragma unroll
  for (int which = 0; which < kSums; ++which) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      parts[(warp * kSums + which) * kWidth + lane * kCount + i] = sums[which].at[i];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kSums * kWidth; i += kThreads) {
    Sum sum = parts[i];
    for (int other = 1; other < kWarps; ++other) sum += parts[other * kSums * kWidth + i];
    const int which = i / kWidth;
    const std::int64_t at = first + i % kWidth;
    if (at >= all.columns) continue;
    if (all.partial != nullptr) {
      all.partial[(std::int64_t{blockIdx.y} * kSums + which) * all.columns + at] = sum;
    } else if (Sum* to = which == 0 ? all.sums[0] : all.sums[kSums - 1]; to != nullptr) {
      to[at] += sum;
    }
  }
}

template <typename Body>
__global__ void __launch_bounds__(kThreads, kBlocks) add_column_sums(ColumnSums<Body> all) {
  if (all.vectors) {
    sum_columns<Body::kVector>(all);
  } else {
    sum_columns<1>(all);
  }
}

template <typename S>
struct Chunks {
  S* sums[2];
  const S* partial;  // [chunks, gridDim.y, columns]
  std::int64_t chunks;
  std::int64_t columns;
};

// 32 columns of one sum a block. Each warp adds consecutive chunks, and the first one the warps.
template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) add_chunks(Chunks<S> all) {
  S* parts = shared_array<S>();  // [kWarps, kWarp]
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + threadIdx.x % kWarp;
  const std::int64_t warp = threadIdx.x / kWarp;
  const std::int64_t of_warp = (all.chunks + kWarps - 1) / kWarps;
  const std::int64_t begin = warp * of_warp;
  const std::int64_t end = begin + of_warp < all.chunks ? begin + of_warp : all.chunks;
  S sum = 0;
  if (column < all.columns) {
#pragma unroll 8
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      sum += all.partial[(chunk * gridDim.y + blockIdx.y) * all.columns + column];
    }
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  S* sums = blockIdx.y == 0 ? all.sums[0] : all.sums[1];
  if (warp != 0 || column >= all.columns || sums == nullptr) return;
  for (int other = 1; other < kWarps; ++other) sum += parts[other * kWarp + threadIdx.x];
  sums[column] += sum;
}

// Enough blocks to fill a GPU twice, and at least four rows for each warp.
inline constexpr std::int64_t kSumBlocks = 1024;
inline constexpr std::int64_t kLeastRows = 4 * kWarps;

// What is summed: the rows of the matrix, and the tensors [columns] that the sums are added to.
struct SummedRows {
  Extent extent;  // its columns are a multiple of Body::kVector if it has vectors
  Tensor first;
  Tensor second = {};
};

template <typename Body>
void launch_column_sums(std::string_view name, const SummedRows& rows, const Body& body,
                        const CallContext& context) {
  using Sum = typename Body::Sum;
  const auto [n, columns, vectors] = rows.extent;
  if (columns == 0 || n == 0) return;
  const auto divided = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  // The same chunks with and without vectors, so that the bits are the same.
  const std::int64_t in_row = divided(columns, kWarp * Body::kVector);
  const std::int64_t least = std::max(kLeastRows, divided(n * in_row, kSumBlocks));
  const std::int64_t chunk_rows = divided(least, kLeastRows) * kLeastRows;
  const std::int64_t chunks = divided(n, chunk_rows);
  const Tensor& sums = rows.first.defined() ? rows.first : rows.second;
  const Tensor partial =
      chunks > 1 ? scratch(sums.dtype(), {chunks, Body::kSums, columns}, context) : Tensor();
  ColumnSums<Body> all{.body = body,
                       .sums = {pointer<Sum>(rows.first)},
                       .partial = pointer<Sum>(partial),
                       .n = n,
                       .columns = columns,
                       .chunk_rows = chunk_rows,
                       .vectors = vectors && columns % Body::kVector == 0};
  if constexpr (Body::kSums == 2) all.sums[1] = pointer<Sum>(rows.second);
  const int width = kWarp * (all.vectors ? Body::kVector : 1);
  launch(
      name, add_column_sums<Body>,
      {.blocks = {static_cast<unsigned>(divided(columns, width)), static_cast<unsigned>(chunks), 1},
       .shared_bytes = kWarps * Body::kSums * static_cast<std::size_t>(width) * sizeof(Sum)},
      all, context.stream);
  if (chunks == 1) return;
  launch(name, add_chunks<Sum>,
         {.blocks = {static_cast<unsigned>(divided(columns, kWarp)), Body::kSums, 1},
          .shared_bytes = kThreads * sizeof(Sum)},
         Chunks<Sum>{.sums = {pointer<Sum>(rows.first), pointer<Sum>(rows.second)},
                     .partial = pointer<const Sum>(partial),
                     .chunks = chunks,
                     .columns = columns},
         context.stream);
}

}  // namespace piton::cuda
