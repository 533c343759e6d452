// A tile of queries of one head, over all keys that it sees, with a running softmax. Internal to
// this folder.
#pragma once

#include "kernels/cuda/attention/attention_tiles.cuh"

namespace piton::cuda {

inline constexpr int kForwardTile = 32;

// Queries first .. first + count - 1 of a sample. `keys` are the sample's, by row.
template <typename T>
struct QueryTile {
  const T* q;  // of query `first`
  std::int64_t q_stride;
  T* out;
  std::int64_t out_stride;
  float* lse;  // of query `first`, or nullptr
  std::int64_t sample;
  std::int64_t head;
  std::int64_t first;
  int count;
  std::int64_t d;
  bool vectors;  // rows of q, keys and values begin at multiples of 16 bytes
};

inline std::size_t forward_shared_bytes(int channels) {
  const int width = kLanes * channels + 1;
  return sizeof(float) *
         static_cast<std::size_t>(2 * kForwardTile * width + kForwardTile * (kForwardTile + 1));
}

// The state of one row's softmax, the same in all lanes of the row.
struct RunningSoftmax {
  float largest = kNothing;
  float sum = 0;

  // Takes the scores of one more tile in, and makes them exp(score - largest). Returns the factor
  // of what was summed before.
  template <int kColumns>
  __device__ float take(float (&scores)[kColumns]) {
    float most = largest;
    for (float score : scores) most = fmaxf(most, score);
    most = row_largest(most);
    const float correction = most == kNothing ? 1.0F : expf(largest - most);
    float mine = 0;
    for (float& score : scores) {
      score = score == kNothing ? 0.0F : expf(score - most);
      mine += score;
    }
    sum = sum * correction + row_sum(mine);
    largest = most;
    return correction;
  }
};

// `key_row(j)` and `value_row(j)` are row j, as in load_tile(). All threads of the block call it.
template <typename T, int kChannels, typename KeyRow, typename ValueRow>
__device__ void attend(const QueryTile<T>& tile, const KeySight& sight, const ScoreRules& rules,
                       const KeyRow& key_row, const ValueRow& value_row) {
  constexpr int kTile = kForwardTile;
  constexpr int kWidth = kLanes * kChannels + 1;
  constexpr int kColumns = kTile / kLanes;
  float* q = shared_array<float>();
  float* kv = q + kTile * kWidth;
  float* p = kv + kTile * kWidth;
  const int row = static_cast<int>(threadIdx.x / kLanes);
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  const int column = lane * kColumns;
  const bool used = row < tile.count;
  const std::int64_t query = tile.first + (used ? row : 0);
  const Positions place = sight.place_of(tile.sample, query);
  const Positions range = query_range(sight, tile.sample, tile.first, tile.count);
  load_tile<kTile, kWidth>(q, tile.count, tile.d,
                           [&](int i) { return tile.q + i * tile.q_stride; });
  float sums[kChannels] = {};
  RunningSoftmax softmax;
  const std::int64_t keys = sight.key_count(tile.sample);
  for (std::int64_t begin = 0; begin < keys; begin += kTile) {
    const int count = static_cast<int>(keys - begin < kTile ? keys - begin : kTile);
    if (!sight.meets(range, sight.key_position(tile.sample, begin),
                     sight.key_position(tile.sample, begin + count - 1))) {
      continue;
    }
    __syncthreads();
    load_tile<kTile, kWidth>(kv, count, tile.d, [&](int i) { return key_row(begin + i); });
    __syncthreads();
    float scores[kColumns];
    multiply_rows<kColumns, kWidth>(scores, q, row, kv, column, tile.d);
    for (int j = 0; j < kColumns; ++j) {
      const std::int64_t key = begin + column + j;
      if (!used || column + j >= count) {
        scores[j] = kNothing;
        continue;
      }
      const std::int64_t at = sight.key_position(tile.sample, key);
      float unused = 0;
      const bool seen = sight.meets(place, at, at) && sight.same_segment(tile.sample, query, key);
      scores[j] = seen ? rules.score(scores[j], &unused) + sight.added(tile.head, at - place.first)
                       : kNothing;
    }
    const float correction = softmax.take(scores);
    for (int j = 0; j < kColumns; ++j) {
      float weight = scores[j];
      if (weight != 0) {
        weight *= rules.factor(tile.sample, tile.head, place.first,
                               sight.key_position(tile.sample, begin + column + j));
      }
      p[row * (kTile + 1) + column + j] = weight;
    }
    __syncthreads();  // the keys have been read
    load_tile<kTile, kWidth>(kv, count, tile.d, [&](int i) { return value_row(begin + i); });
    __syncthreads();
    for (float& sum : sums) sum *= correction;
    add_weighted_rows<kTile, kChannels>(sums, p, row, kv, count);
  }
  if (!used) return;
  for (int i = 0; i < kChannels; ++i) {
    const int c = lane + kLanes * i;
    if (c >= tile.d) break;
    tile.out[row * tile.out_stride + c] =
        narrow<T>(softmax.sum == 0 ? 0.0F : sums[i] / softmax.sum);
  }
  if (tile.lse != nullptr && lane == 0) {
    tile.lse[row] = softmax.sum == 0 ? kNothing : softmax.largest + logf(softmax.sum);
  }
}

}  // namespace piton::cuda
