// What the kernels of AttentionForward read, and the tile of a block. Internal to this folder.
#pragma once

#include "kernels/cuda/attention/attention_forward.cuh"
#include "kernels/cuda/attention/tensor_tiles.cuh"

namespace piton::cuda {

template <typename T>
struct ForwardGrid {
  HeadMatrix<T> out;
  float* lse;  // [b, a, sq]
  HeadMatrix<const T> q;
  HeadMatrix<const T> k;
  HeadMatrix<const T> v;
  KeySight sight;
  ScoreRules rules;
  std::int64_t heads_per_key;
  std::int64_t d;
  bool vectors;  // in_vectors(), of q, k and v
};

template <typename T>
ForwardGrid<T> forward_grid(const AttentionForward& call) {
  return {.out = head_matrix<T>(call.out),
          .lse = pointer<float>(call.lse),
          .q = head_matrix<const T>(call.q),
          .k = head_matrix<const T>(call.k),
          .v = head_matrix<const T>(call.v),
          .sight = sight_of(call.mask, call.q.dim(1), call.k.dim(1)),
          .rules = rules_of(call),
          .heads_per_key = call.q.dim(2) / call.k.dim(2),
          .d = call.q.dim(3),
          .vectors = in_vectors(call.q) && in_vectors(call.k) && in_vectors(call.v)};
}

// That of a block: a tile of `rows` queries, a head, a sample. Under a causal mask the last tile
// sees the most keys, so it is the first to start.
template <typename T>
__device__ QueryTile<T> query_tile(const ForwardGrid<T>& grid, int rows) {
  const std::int64_t first = std::int64_t{gridDim.x - 1 - blockIdx.x} * rows;
  const std::int64_t head = blockIdx.y;
  const std::int64_t sample = blockIdx.z;
  const std::int64_t queries = grid.sight.queries;
  const std::int64_t left = queries - first;
  return {.q = grid.q.row(sample, first, head),
          .q_stride = grid.q.row_stride,
          .out = grid.out.row(sample, first, head),
          .out_stride = grid.out.row_stride,
          .lse = grid.lse + (sample * gridDim.y + head) * queries + first,
          .sample = sample,
          .head = head,
          .first = first,
          .count = static_cast<int>(left < rows ? left : rows),
          .d = grid.d,
          .vectors = grid.vectors};
}

}  // namespace piton::cuda
