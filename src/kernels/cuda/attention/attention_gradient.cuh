// What the kernels of attention's gradients share. Internal to this folder.
#pragma once

#include "kernels/cuda/attention/attention_tiles.cuh"
#include "kernels/cuda/context.h"

namespace piton::cuda {

template <typename T>
struct BackwardGrid {
  HeadMatrix<T> dq;
  HeadMatrix<T> dk;
  HeadMatrix<T> dv;
  HeadMatrix<const T> dout;
  HeadMatrix<const T> out;
  const float* lse;  // [b, a, sq]
  HeadMatrix<const T> q;
  HeadMatrix<const T> k;
  HeadMatrix<const T> v;
  KeySight sight;
  ScoreRules rules;
  std::int64_t heads;
  std::int64_t heads_per_key;
  std::int64_t d;
};

// Of one query and one key: P with its mask factor, the gradient of the score, and dS, that of the
// scaled product.
struct PairGradient {
  float weight = 0;
  float score = 0;
  float ds = 0;
};

// What is known of a query.
struct QueryFacts {
  std::int64_t index;
  Positions place;
  float lse;
  float dout_out;
};

template <typename T>
__device__ PairGradient pair_gradient(const BackwardGrid<T>& grid, std::int64_t sample,
                                      std::int64_t head, const QueryFacts& query, std::int64_t key,
                                      float product, float dout_v) {
  const std::int64_t at = grid.sight.key_position(sample, key);
  if (query.lse == kNothing || !grid.sight.meets(query.place, at, at) ||
      !grid.sight.same_segment(sample, query.index, key)) {
    return {};
  }
  float slope = 1;
  const float score =
      grid.rules.score(product, &slope) + grid.sight.added(head, at - query.place.first);
  const float p = expf(score - query.lse);
  const float factor = grid.rules.factor(sample, head, query.place.first, at);
  const float difference = factor * dout_v - query.dout_out;
  return {factor * p, p * difference, slope * p * difference};
}

// dout . out of a query, from its row of the tile; every lane of the row gets it.
template <int kChannels, typename T>
__device__ float dot_with_out(const float* dout_row, const T* out, std::int64_t d) {
  float sum = 0;
  for (int i = 0; i < kChannels; ++i) {
    const int c = static_cast<int>(threadIdx.x % kLanes) + kLanes * i;
    if (out != nullptr && c < d) sum = fmaf(dout_row[c], widen(out[c]), sum);
  }
  return row_sum(sum);
}

template <typename T>
BackwardGrid<T> backward_grid(const AttentionBackward& call) {
  return {.dq = head_matrix<T>(call.dq),
          .dk = head_matrix<T>(call.dk),
          .dv = head_matrix<T>(call.dv),
          .dout = head_matrix<const T>(call.dout),
          .out = head_matrix<const T>(call.out),
          .lse = pointer<const float>(call.lse),
          .q = head_matrix<const T>(call.q),
          .k = head_matrix<const T>(call.k),
          .v = head_matrix<const T>(call.v),
          .sight = sight_of(call.mask, call.q.dim(1), call.k.dim(1)),
          .rules = rules_of(call),
          .heads = call.q.dim(2),
          .heads_per_key = call.q.dim(2) / call.k.dim(2),
          .d = call.q.dim(3)};
}

inline LaunchShape backward_shape(std::int64_t rows, std::int64_t heads, std::int64_t samples,
                                  int tile, std::size_t shared_floats) {
  return {.blocks = {static_cast<unsigned>((rows + tile - 1) / tile), static_cast<unsigned>(heads),
                     static_cast<unsigned>(samples)},
          .threads = tile * kLanes,
          .shared_bytes = shared_floats * sizeof(float)};
}

// Rows of a tile for heads of this size: tiles of 16 rows keep four tiles of 256 channels below the
// 99 KiB of small GPUs.
template <int kChannels>
constexpr int kGradientTile = kChannels > 16 ? 16 : 32;

// As AttentionBackward without `dbias`, for 16-bit types and heads of at most 128 channels.
template <typename T, int kChannels>
void launch_gradients_on_tensor_cores(const AttentionBackward& call, const CallContext& context);

// Writes the gradient of the bias of distances.
void launch_bias_gradient(const AttentionBackward& call, const CallContext& context);

}  // namespace piton::cuda
