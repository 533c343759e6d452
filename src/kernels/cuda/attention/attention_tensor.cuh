// A tile of queries of one head over all keys that it sees, as attention_forward.cuh, on tensor
// cores: for 16-bit types and heads of at most 128 channels. Internal to this folder.
//
// A warp computes 16 queries. Scores, softmax and sums are in fp32; probabilities are rounded to
// the type of the values. A row has the same bits in every tile: the tiles of keys begin at
// multiples of kTensorTile.
#pragma once

#include <utility>

#include "kernels/cuda/attention/attention_forward.cuh"
#include "kernels/cuda/attention/tensor_cores.cuh"

namespace piton::cuda {

inline constexpr int kTensorTile = 64;  // queries of a block, and keys of a step
inline constexpr int kTensorThreads = kTensorTile / 16 * kWarp;
inline constexpr float kLogE2 = 1.44269504088896340736F;  // log2(e)

// Rows of a tile in shared memory, for heads of 16 kSteps channels. The 16 bytes in addition keep
// rows of one column in different banks.
template <int kSteps>
inline constexpr int kTensorPitch = 16 * kSteps + 8;

inline std::size_t tensor_shared_bytes(int steps) {
  return sizeof(std::uint16_t) * static_cast<std::size_t>(2 * kTensorTile * (16 * steps + 8));
}

// Whether all rows of heads begin at multiples of 16 bytes.
inline bool in_vectors(const Tensor& tensor) {
  auto bits = reinterpret_cast<std::uintptr_t>(tensor.raw());
  for (int dim = 0; dim + 1 < tensor.ndim(); ++dim) {
    if (tensor.dim(dim) > 1)
      bits |= static_cast<std::uintptr_t>(tensor.stride(dim) * size_bytes(tensor.dtype()));
  }
  return bits % sizeof(uint4) == 0;
}

// Copies `count` rows of d channels into a tile; all else of it is 0. `vectors`: in_vectors().
template <typename T, int kSteps, typename RowOf>
__device__ void load_rows(T* tile, int count, std::int64_t d, bool vectors, const RowOf& row_of) {
  constexpr int kInVector = static_cast<int>(sizeof(uint4) / sizeof(T));
  constexpr int kVectors = 16 * kSteps / kInVector;  // of a row
  for (int i = static_cast<int>(threadIdx.x); i < kTensorTile * kVectors; i += kTensorThreads) {
    const int row = i / kVectors;
    const int c = i % kVectors * kInVector;
    T* to = tile + row * kTensorPitch<kSteps> + c;
    if (row < count) {
      const auto from = row_of(row);
      if constexpr (std::is_pointer_v<decltype(row_of(row))>) {
        if (vectors && c + kInVector <= d) {
          *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from + c);
          continue;
        }
      }
      for (int j = 0; j < kInVector; ++j) to[j] = c + j < d ? from[c + j] : narrow<T>(0.0F);
    } else {
      *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
    }
  }
}

// Of the first `count` queries of a tile, as query_range().
__device__ inline Positions range_of_tile(const KeySight& sight, std::int64_t sample,
                                          std::int64_t begin, int count) {
  Positions range = query_range(sight, sample, begin, count < kWarp ? count : kWarp);
  if (count <= kWarp) return range;
  const Positions rest = query_range(sight, sample, begin + kWarp, count - kWarp);
  if (rest.first < range.first) range.first = rest.first;
  if (rest.last > range.last) range.last = rest.last;
  if (rest.reach > range.reach) range.reach = rest.reach;
  return range;
}

// The scores of 16 queries and the keys of a step, in a warp: row g + 8 i of the queries has
// numbers 2 i and 2 i + 1 of each block of 8 keys (tensor_cores.cuh).
inline constexpr int kKeyBlocks = kTensorTile / 8;
struct WarpScores {
  float block[kKeyBlocks][4];
};

// body(0), body(1), ... of every block of keys, each as separate code: an index that is not known
// to the compiler would put the scores into memory.
template <typename Body>
__device__ void for_key_blocks(const Body& body) {
  [&]<int... j>(std::integer_sequence<int, j...>) { (body(j), ...); }
  (std::make_integer_sequence<int, kKeyBlocks>{});
}

// The softmax of the two rows of a lane. `sum` is of the lane's own columns.
struct LaneSoftmax {
  float largest[2] = {kNothing, kNothing};
  float sum[2] = {0, 0};

  // As RunningSoftmax::take(); the factors of what was summed before, of both rows.
  __device__ void take(WarpScores& scores, float (&corrections)[2]) {
    for (int i = 0; i < 2; ++i) {
      float most = largest[i];
      for (int j = 0; j < kKeyBlocks; ++j)
        most = fmaxf(most, fmaxf(scores.block[j][2 * i], scores.block[j][2 * i + 1]));
      for (int distance = 2; distance > 0; distance /= 2)
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, distance));
      corrections[i] = most == kNothing ? 1.0F : exp2f((largest[i] - most) * kLogE2);
      sum[i] *= corrections[i];
      for (int j = 0; j < kKeyBlocks; ++j) {
        for (int e = 2 * i; e < 2 * i + 2; ++e) {
          float& score = scores.block[j][e];
          score = score == kNothing ? 0.0F : exp2f((score - most) * kLogE2);
          sum[i] += score;
        }
      }
      largest[i] = most;
    }
  }

  // The sum of row i over all columns.
  __device__ float whole_sum(int i) const {
    float all = sum[i];
    for (int distance = 2; distance > 0; distance /= 2)
      all += __shfl_xor_sync(kAllLanes, all, distance);
    return all;
  }
};

// The two queries of a lane, and what their scores follow.
struct LaneQueries {
  const KeySight& sight;
  const ScoreRules& rules;
  std::int64_t sample;
  std::int64_t head;
  bool used[2];
  std::int64_t index[2];
  Positions place[2];

  // From products to scores. `count`: keys of the step, from key `begin` on. `all`: each query sees
  // each of them.
  __device__ void mask(WarpScores& scores, std::int64_t begin, int count, bool all) const {
    const int pair = static_cast<int>(threadIdx.x % 4);
    for_key_blocks([&](int j) {
      for (int e = 0; e < 4; ++e) {
        const int column = 8 * j + 2 * pair + e % 2;
        float& score = scores.block[j][e];
        if (!all && (!used[e / 2] || column >= count)) {
          score = kNothing;
          continue;
        }
        const std::int64_t at = sight.key_position(sample, begin + column);
        const bool seen = all || (sight.meets(place[e / 2], at, at) &&
                                  sight.same_segment(sample, index[e / 2], begin + column));
        float unused = 0;
        score = seen ? rules.score(score, &unused) + sight.added(head, at - place[e / 2].first)
                     : kNothing;
      }
    });
  }

  // Multiplies probabilities by the factors of dropout. Positions of keys are consecutive, from a
  // multiple of 4 on (attention.h), so a draw is for both columns of a pair.
  __device__ void drop(WarpScores& scores, std::int64_t begin) const {
    if (!rules.site.draws) return;
    const int pair = static_cast<int>(threadIdx.x % 4);
    const std::int64_t first = sight.key_position(sample, begin);
    const auto kept = static_cast<float>(rules.site.kept);
    for_key_blocks([&](int j) {
      for (int i = 0; i < 2; ++i) {
        float& low = scores.block[j][2 * i];
        float& high = scores.block[j][2 * i + 1];
        if (low == 0 && high == 0) continue;
        const MaskWords drawn = rules.site.words(sample, rules.head_begin + head, place[i].first,
                                                 first + 8 * j + 2 * pair);
        low *= rules.site.keeps(pair % 2 == 0 ? drawn.word[0] : drawn.word[2]) ? kept : 0.0F;
        high *= rules.site.keeps(pair % 2 == 0 ? drawn.word[1] : drawn.word[3]) ? kept : 0.0F;
      }
    });
  }
};

// scores = q k^T, of the queries of a warp and a tile of keys.
template <typename T, int kSteps>
__device__ void multiply_keys(WarpScores& scores, const std::uint32_t (&q)[kSteps][4], const T* k) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  scores = {};
  for (int j = 0; j < kKeyBlocks; ++j) {
    for (int s = 0; s < kSteps; s += 2) {
      std::uint32_t right[4];
      load_matrices<false>(right,
                           k + (8 * j + lane % 8) * kTensorPitch<kSteps> + 16 * s + lane / 8 * 8);
      multiply_fragments<T>(scores.block[j], q[s], right);
      multiply_fragments<T>(scores.block[j], q[s + 1], right + 2);
    }
  }
}

// sums = sums corrections + p v, of the probabilities of a warp and a tile of values.
template <typename T, int kSteps>
__device__ void add_values(float (&sums)[2 * kSteps][4], const float (&corrections)[2],
                           const WarpScores& p, const T* v) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  for (auto& block : sums) {
    for (int e = 0; e < 4; ++e) block[e] *= corrections[e / 2];
  }
  for (int j = 0; j < kKeyBlocks; j += 2) {  // 16 keys
    const auto& before = p.block[j];
    const auto& behind = p.block[j + 1];
    const std::uint32_t left[4] = {
        rounded_pair<T>(before[0], before[1]), rounded_pair<T>(before[2], before[3]),
        rounded_pair<T>(behind[0], behind[1]), rounded_pair<T>(behind[2], behind[3])};
    for (int s = 0; s < kSteps; ++s) {
      std::uint32_t right[4];
      load_matrices<true>(right,
                          v + (8 * j + lane % 16) * kTensorPitch<kSteps> + 16 * s + lane / 16 * 8);
      multiply_fragments<T>(sums[2 * s], left, right);
      multiply_fragments<T>(sums[2 * s + 1], left, right + 2);
    }
  }
}

// As attend(), by kTensorThreads threads, for heads of at most 16 kSteps channels.
template <typename T, int kSteps, typename KeyRow, typename ValueRow>
__device__ void attend_on_tensor_cores(const QueryTile<T>& tile, const KeySight& sight,
                                       const ScoreRules& rules, const KeyRow& key_row,
                                       const ValueRow& value_row) {
  constexpr int kPitch = kTensorPitch<kSteps>;
  T* k = shared_array<T>();
  T* v = k + kTensorTile * kPitch;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int first = static_cast<int>(threadIdx.x / kWarp) * 16;  // query of the warp, in the tile
  const int left = tile.count - first;
  const int rows = left < 16 ? left : 16;  // of the warp; at most 0: none
  load_rows<T, kSteps>(k, tile.count, tile.d, tile.vectors,
                       [&](int i) { return tile.q + i * tile.q_stride; });
  __syncthreads();
  std::uint32_t q[kSteps][4];
  for (int s = 0; s < kSteps; ++s)
    load_matrices<false>(q[s], k + (first + lane % 16) * kPitch + 16 * s + lane / 16 * 8);
  LaneQueries queries{.sight = sight, .rules = rules, .sample = tile.sample, .head = tile.head};
  for (int i = 0; i < 2; ++i) {
    const int row = lane / 4 + 8 * i;
    queries.used[i] = row < rows;
    queries.index[i] = tile.first + (row < rows ? first + row : 0);
    queries.place[i] = sight.place_of(tile.sample, queries.index[i]);
  }
  const Positions whole = range_of_tile(sight, tile.sample, tile.first, tile.count);
  const Positions own =
      rows > 0 ? query_range(sight, tile.sample, tile.first + first, rows) : whole;
  float sums[2 * kSteps][4] = {};
  LaneSoftmax softmax;
  const std::int64_t keys = sight.key_count(tile.sample);
  for (std::int64_t begin = 0; begin < keys; begin += kTensorTile) {
    const int count = static_cast<int>(keys - begin < kTensorTile ? keys - begin : kTensorTile);
    const std::int64_t low = sight.key_position(tile.sample, begin);
    const std::int64_t high = sight.key_position(tile.sample, begin + count - 1);
    if (!sight.meets(whole, low, high)) continue;
    __syncthreads();
    load_rows<T, kSteps>(k, count, tile.d, tile.vectors, [&](int i) { return key_row(begin + i); });
    load_rows<T, kSteps>(v, count, tile.d, tile.vectors,
                         [&](int i) { return value_row(begin + i); });
    __syncthreads();
    if (rows <= 0 || !sight.meets(own, low, high)) continue;  // the whole warp
    WarpScores scores;
    multiply_keys<T, kSteps>(scores, q, k);
    queries.mask(scores, begin, count,
                 rows == 16 && count == kTensorTile && sight.covers(own, low, high));
    float corrections[2];
    softmax.take(scores, corrections);
    queries.drop(scores, begin);
    add_values<T, kSteps>(sums, corrections, scores, v);
  }
  if (rows <= 0) return;  // the whole warp
  for (int i = 0; i < 2; ++i) {
    const float sum = softmax.whole_sum(i);
    if (!queries.used[i]) continue;
    const int row = first + lane / 4 + 8 * i;
    T* out = tile.out + row * tile.out_stride;
    for (int n = 0; n < 2 * kSteps; ++n) {
      for (int e = 0; e < 2; ++e) {
        const int c = 8 * n + lane % 4 * 2 + e;
        if (c < tile.d) out[c] = narrow<T>(sum == 0 ? 0.0F : sums[n][2 * i + e] / sum);
      }
    }
    if (tile.lse != nullptr && lane % 4 == 0)
      tile.lse[row] = sum == 0 ? kNothing : softmax.largest[i] + logf(sum);
  }
}

// How queries in T with heads of kLanes kChannels channels are divided among blocks.
template <typename T, int kChannels>
struct ForwardShape {
  static constexpr bool kOnTensorCores = sizeof(T) == 2 && kChannels <= 16;
  static constexpr int kTile = kOnTensorCores ? kTensorTile : kForwardTile;
  static constexpr int kThreads = kOnTensorCores ? kTensorThreads : kForwardTile * kLanes;
  static std::size_t shared_bytes() {
    return kOnTensorCores ? tensor_shared_bytes(kChannels / 2) : forward_shared_bytes(kChannels);
  }
};

template <typename T, int kChannels, typename KeyRow, typename ValueRow>
__device__ void attend_in_shape(const QueryTile<T>& tile, const KeySight& sight,
                                const ScoreRules& rules, const KeyRow& key_row,
                                const ValueRow& value_row) {
  if constexpr (ForwardShape<T, kChannels>::kOnTensorCores) {
    attend_on_tensor_cores<T, kChannels / 2>(tile, sight, rules, key_row, value_row);
  } else {
    attend<T, kChannels>(tile, sight, rules, key_row, value_row);
  }
}

}  // namespace piton::cuda
