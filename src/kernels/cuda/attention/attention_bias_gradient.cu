// The gradient of the bias of distances: of each column, the sum of the gradients of the scores
// with this distance from query to key. P is computed again, as in attention_backward.cu.
#include "kernels/cuda/attention/attention_gradient.cuh"
#include "kernels/cuda/calls.h"

namespace piton::cuda {
namespace {

template <typename T>
struct BiasGrid {
  float* dbias;  // [b, a, bias_width]
  BackwardGrid<T> pairs;
};

// The shared memory of a block.
template <int kWidth, int kTile>
struct BiasTiles {
  float* q = shared_array<float>();
  float* dout = q + kTile * kWidth;
  float* k = dout + kTile * kWidth;
  float* v = k + kTile * kWidth;
  float* scores = v + kTile * kWidth;  // [kTile, kTile + 1]: their gradients
};

// A block: kTile columns of the bias, a head, a sample. Of each tile of queries, two tiles of keys
// have the distances of these columns: query i and column t belong to key i + t of the two.
template <typename T, int kChannels, int kTile>
__global__ void __launch_bounds__(kTile* kLanes, kBlocks) bias_gradient(BiasGrid<T> grid) {
  constexpr int kWidth = kLanes * kChannels + 1;
  constexpr int kColumns = kTile / kLanes;
  const BiasTiles<kWidth, kTile> tiles;
  const BackwardGrid<T>& pairs = grid.pairs;
  const KeySight& sight = pairs.sight;
  const std::int64_t first_column = std::int64_t{blockIdx.x} * kTile;
  const std::int64_t head = blockIdx.y;
  const std::int64_t sample = blockIdx.z;
  const std::int64_t key_head = head / pairs.heads_per_key;
  const std::int64_t keys = sight.key_count(sample);
  const int row = static_cast<int>(threadIdx.x / kLanes);
  const int column = static_cast<int>(threadIdx.x % kLanes) * kColumns;
  float sum = 0;  // of column threadIdx.x, in the first kTile threads
  for (std::int64_t first = 0; first < sight.queries; first += kTile) {
    const std::int64_t nearest = sight.query_begin + first + first_column - sight.bias_origin;
    if (nearest >= keys || nearest + 2 * kTile <= 0) continue;
    const std::int64_t left = sight.queries - first;
    const int rows = static_cast<int>(left < kTile ? left : kTile);
    const bool used = row < rows;
    const std::int64_t index = first + (used ? row : 0);
    __syncthreads();
    load_tile<kTile, kWidth>(tiles.q, rows, pairs.d,
                             [&](int i) { return pairs.q.row(sample, first + i, head); });
    load_tile<kTile, kWidth>(tiles.dout, rows, pairs.d,
                             [&](int i) { return pairs.dout.row(sample, first + i, head); });
    __syncthreads();
    const QueryFacts query{
        .index = index,
        .place = sight.place_of(sample, index),
        .lse = used ? pairs.lse[(sample * pairs.heads + head) * sight.queries + index] : kNothing,
        .dout_out =
            dot_with_out<kChannels>(tiles.dout + row * kWidth,
                                    used ? pairs.out.row(sample, index, head) : nullptr, pairs.d)};
    for (int half = 0; half < 2; ++half) {
      const std::int64_t begin = nearest + half * kTile;
      if (begin >= keys || begin + kTile <= 0) continue;
      const int count = static_cast<int>(keys - begin < kTile ? keys - begin : kTile);
      const auto key_of = [&](int i) { return begin + i < 0 ? 0 : begin + i; };
      load_tile<kTile, kWidth>(tiles.k, count, pairs.d,
                               [&](int i) { return pairs.k.row(sample, key_of(i), key_head); });
      load_tile<kTile, kWidth>(tiles.v, count, pairs.d,
                               [&](int i) { return pairs.v.row(sample, key_of(i), key_head); });
      __syncthreads();
      float products[kColumns];
      float dout_v[kColumns];
      multiply_rows<kColumns, kWidth>(products, tiles.q, row, tiles.k, column, pairs.d);
      multiply_rows<kColumns, kWidth>(dout_v, tiles.dout, row, tiles.v, column, pairs.d);
      for (int j = 0; j < kColumns; ++j) {
        const std::int64_t key = begin + column + j;
        PairGradient pair;
        if (used && key >= 0 && column + j < count)
          pair = pair_gradient(pairs, sample, head, query, key, products[j], dout_v[j]);
        tiles.scores[row * (kTile + 1) + column + j] = pair.score;
      }
      __syncthreads();
      if (threadIdx.x < kTile) {
        for (int i = 0; i < rows; ++i) {
          const int j = i + static_cast<int>(threadIdx.x) - half * kTile;
          if (j >= 0 && j < kTile) sum += tiles.scores[i * (kTile + 1) + j];
        }
      }
      __syncthreads();
    }
  }
  const std::int64_t mine = first_column + threadIdx.x;
  if (threadIdx.x < kTile && mine < sight.bias_width)
    grid.dbias[(sample * pairs.heads + head) * sight.bias_width + mine] = sum;
}

}  // namespace

void launch_bias_gradient(const AttentionBackward& call, const CallContext& context) {
  if (call.dbias.elements() == 0) return;
  with_heads(call.q.dtype(), call.q.dim(3),
             [&]<typename T, int kChannels>(std::type_identity<T>,
                                            std::integral_constant<int, kChannels>) {
               constexpr int kTile = 16;  // with 32, registers are spilled for 64 channels
               launch("launch of attention backward, bias", bias_gradient<T, kChannels, kTile>,
                      backward_shape(call.dbias.dim(2), call.q.dim(2), call.q.dim(0), kTile,
                                     4 * kTile * (kLanes * kChannels + 1) + kTile * (kTile + 1)),
                      BiasGrid<T>{pointer<float>(call.dbias), backward_grid<T>(call)},
                      context.stream);
             });
}

}  // namespace piton::cuda
