// Gradients of attention: one kernel for queries, one for keys and values. Both compute P again
// from q, k and lse, and sum in a fixed order.
//
//   dv_j = sum_i M P dout_i     dS = P (M (dout_i . v_j) - D_i), times the slope of a soft cap
//   dq_i = scale sum_j dS k_j   dk_j = scale sum_i dS q_i        D_i = dout_i . out_i
#include "kernels/cuda/attention/attention_gradient.cuh"
#include "kernels/cuda/calls.h"

namespace piton::cuda {
namespace {

template <typename T, int kChannels>
__device__ void write_row(T* row, const float* sums, float factor, std::int64_t d) {
  for (int i = 0; i < kChannels; ++i) {
    const int c = static_cast<int>(threadIdx.x % kLanes) + kLanes * i;
    if (c < d) row[c] = narrow<T>(factor * sums[i]);
  }
}

// A block: a tile of queries, a head, a sample.
template <typename T, int kChannels, int kTile>
__global__ void __launch_bounds__(kTile* kLanes, kBlocks) query_gradient(BackwardGrid<T> grid) {
  constexpr int kWidth = kLanes * kChannels + 1;
  constexpr int kColumns = kTile / kLanes;
  float* q = shared_array<float>();
  float* dout = q + kTile * kWidth;
  float* k = dout + kTile * kWidth;
  float* v = k + kTile * kWidth;
  float* ds = v + kTile * kWidth;
  const KeySight& sight = grid.sight;
  const std::int64_t first = std::int64_t{blockIdx.x} * kTile;
  const std::int64_t head = blockIdx.y;
  const std::int64_t sample = blockIdx.z;
  const std::int64_t key_head = head / grid.heads_per_key;
  const std::int64_t left = sight.queries - first;
  const int rows = static_cast<int>(left < kTile ? left : kTile);
  const int row = static_cast<int>(threadIdx.x / kLanes);
  const int column = static_cast<int>(threadIdx.x % kLanes) * kColumns;
  const bool used = row < rows;
  load_tile<kTile, kWidth>(q, rows, grid.d,
                           [&](int i) { return grid.q.row(sample, first + i, head); });
  load_tile<kTile, kWidth>(dout, rows, grid.d,
                           [&](int i) { return grid.dout.row(sample, first + i, head); });
  __syncthreads();
  const std::int64_t index = first + (used ? row : 0);
  const QueryFacts query{
      .index = index,
      .place = sight.place_of(sample, index),
      .lse = used ? grid.lse[(sample * grid.heads + head) * sight.queries + index] : kNothing,
      .dout_out = dot_with_out<kChannels>(
          dout + row * kWidth, used ? grid.out.row(sample, index, head) : nullptr, grid.d)};
  const Positions range = query_range(sight, sample, first, rows);
  float sums[kChannels] = {};
  const std::int64_t keys = sight.key_count(sample);
  for (std::int64_t begin = 0; begin < keys; begin += kTile) {
    const int count = static_cast<int>(keys - begin < kTile ? keys - begin : kTile);
    if (!sight.meets(range, sight.key_position(sample, begin),
                     sight.key_position(sample, begin + count - 1))) {
      continue;
    }
    __syncthreads();
    load_tile<kTile, kWidth>(k, count, grid.d,
                             [&](int i) { return grid.k.row(sample, begin + i, key_head); });
    load_tile<kTile, kWidth>(v, count, grid.d,
                             [&](int i) { return grid.v.row(sample, begin + i, key_head); });
    __syncthreads();
    float products[kColumns];
    float dout_v[kColumns];
    multiply_rows<kColumns, kWidth>(products, q, row, k, column, grid.d);
    multiply_rows<kColumns, kWidth>(dout_v, dout, row, v, column, grid.d);
    for (int j = 0; j < kColumns; ++j) {
      PairGradient pair;
      if (used && column + j < count) {
        pair = pair_gradient(grid, sample, head, query, begin + column + j, products[j], dout_v[j]);
      }
      ds[row * (kTile + 1) + column + j] = pair.ds;
    }
    __syncthreads();
    add_weighted_rows<kTile, kChannels>(sums, ds, row, k, count);
  }
  if (used) {
    write_row<T, kChannels>(grid.dq.row(sample, index, head), sums, grid.rules.scale, grid.d);
  }
}

// The shared memory of a block of key_gradient().
template <int kWidth, int kTile>
struct KeyTiles {
  float* k = shared_array<float>();
  float* v = k + kTile * kWidth;
  float* q = v + kTile * kWidth;
  float* dout = q + kTile * kWidth;
  float* weights = dout + kTile * kWidth;
  float* ds = weights + kTile * (kTile + 1);
  float* lse = ds + kTile * (kTile + 1);
  float* dout_out = lse + kTile;
};

// Adds what one tile of queries of one head gives to the keys of the block.
template <typename T, int kChannels, int kTile>
__device__ void add_queries(const BackwardGrid<T>& grid,
                            const KeyTiles<kLanes * kChannels + 1, kTile>& tiles, std::int64_t head,
                            std::int64_t first, std::int64_t begin, int keys, float* dk,
                            float* dv) {
  constexpr int kWidth = kLanes * kChannels + 1;
  constexpr int kColumns = kTile / kLanes;
  const KeySight& sight = grid.sight;
  const std::int64_t sample = blockIdx.z;
  const std::int64_t left = sight.queries - first;
  const int rows = static_cast<int>(left < kTile ? left : kTile);
  const int row = static_cast<int>(threadIdx.x / kLanes);
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  const int column = lane * kColumns;
  __syncthreads();
  load_tile<kTile, kWidth>(tiles.q, rows, grid.d,
                           [&](int i) { return grid.q.row(sample, first + i, head); });
  load_tile<kTile, kWidth>(tiles.dout, rows, grid.d,
                           [&](int i) { return grid.dout.row(sample, first + i, head); });
  __syncthreads();
  const T* out = row < rows ? grid.out.row(sample, first + row, head) : nullptr;
  const float dout_out = dot_with_out<kChannels>(tiles.dout + row * kWidth, out, grid.d);
  if (lane == 0) {
    tiles.dout_out[row] = dout_out;
    tiles.lse[row] = row < rows
                         ? grid.lse[(sample * grid.heads + head) * sight.queries + first + row]
                         : kNothing;
  }
  __syncthreads();
  float products[kColumns];
  float dout_v[kColumns];
  multiply_rows<kColumns, kWidth>(products, tiles.k, row, tiles.q, column, grid.d);
  multiply_rows<kColumns, kWidth>(dout_v, tiles.v, row, tiles.dout, column, grid.d);
  for (int j = 0; j < kColumns; ++j) {
    const int i = column + j;
    PairGradient pair;
    if (row < keys && i < rows) {
      const QueryFacts query{first + i, sight.place_of(sample, first + i), tiles.lse[i],
                             tiles.dout_out[i]};
      pair = pair_gradient(grid, sample, head, query, begin + row, products[j], dout_v[j]);
    }
    tiles.weights[row * (kTile + 1) + i] = pair.weight;
    tiles.ds[row * (kTile + 1) + i] = pair.ds;
  }
  __syncthreads();
  add_weighted_rows<kTile, kChannels>(dv, tiles.weights, row, tiles.dout, rows);
  add_weighted_rows<kTile, kChannels>(dk, tiles.ds, row, tiles.q, rows);
}

// A block: a tile of keys, a head of keys, a sample.
template <typename T, int kChannels, int kTile>
__global__ void __launch_bounds__(kTile* kLanes, kBlocks) key_gradient(BackwardGrid<T> grid) {
  constexpr int kWidth = kLanes * kChannels + 1;
  const KeyTiles<kWidth, kTile> tiles;
  const KeySight& sight = grid.sight;
  const std::int64_t begin = std::int64_t{blockIdx.x} * kTile;
  const std::int64_t key_head = blockIdx.y;
  const std::int64_t sample = blockIdx.z;
  const std::int64_t left = sight.keys - begin;
  const int held = static_cast<int>(left < kTile ? left : kTile);
  const std::int64_t visible = sight.key_count(sample) - begin;
  const int keys = static_cast<int>(visible < held ? (visible > 0 ? visible : 0) : held);
  const int row = static_cast<int>(threadIdx.x / kLanes);
  float dk[kChannels] = {};
  float dv[kChannels] = {};
  if (keys > 0) {
    load_tile<kTile, kWidth>(tiles.k, keys, grid.d,
                             [&](int i) { return grid.k.row(sample, begin + i, key_head); });
    load_tile<kTile, kWidth>(tiles.v, keys, grid.d,
                             [&](int i) { return grid.v.row(sample, begin + i, key_head); });
    const std::int64_t low = sight.key_position(sample, begin);
    const std::int64_t high = sight.key_position(sample, begin + keys - 1);
    for (std::int64_t i = 0; i < grid.heads_per_key; ++i) {
      const std::int64_t head = key_head * grid.heads_per_key + i;
      for (std::int64_t first = 0; first < sight.queries; first += kTile) {
        const std::int64_t rest = sight.queries - first;
        const int rows = static_cast<int>(rest < kTile ? rest : kTile);
        const Positions range = query_range(sight, sample, first, rows);
        if (!sight.meets(range, low, high)) continue;
        add_queries<T, kChannels, kTile>(grid, tiles, head, first, begin, keys, dk, dv);
      }
    }
  }
  if (row >= held) return;
  write_row<T, kChannels>(grid.dk.row(sample, begin + row, key_head), dk, grid.rules.scale, grid.d);
  write_row<T, kChannels>(grid.dv.row(sample, begin + row, key_head), dv, 1, grid.d);
}

}  // namespace

void execute(const AttentionBackward& call, const CallContext& context) {
  const std::int64_t samples = call.q.dim(0);
  with_heads(call.q.dtype(), call.q.dim(3),
             [&]<typename T, int kChannels>(std::type_identity<T>,
                                            std::integral_constant<int, kChannels>) {
               if constexpr (sizeof(T) == 2 && kChannels <= 16) {
                 return launch_gradients_on_tensor_cores<T, kChannels>(call, context);
               } else {
                 constexpr int kTile = kGradientTile<kChannels>;
                 constexpr int kRows = 4 * kTile * (kLanes * kChannels + 1);
                 constexpr int kPairs = kTile * (kTile + 1);
                 const BackwardGrid<T> grid = backward_grid<T>(call);
                 if (call.q.elements() > 0) {
                   launch(
                       "launch of attention backward, queries", query_gradient<T, kChannels, kTile>,
                       backward_shape(call.q.dim(1), call.q.dim(2), samples, kTile, kRows + kPairs),
                       grid, context.stream);
                 }
                 if (call.k.elements() > 0) {
                   launch("launch of attention backward, keys", key_gradient<T, kChannels, kTile>,
                          backward_shape(call.k.dim(1), call.k.dim(2), samples, kTile,
                                         kRows + 2 * kPairs + 2 * kTile),
                          grid, context.stream);
                 }
               }
             });
  if (call.dbias.defined()) launch_bias_gradient(call, context);
}

}  // namespace piton::cuda
