// A tile of queries of one head over all keys that it sees, as attention_forward.cuh, on tensor
// cores: for 16-bit types and heads of at most 128 channels. Internal to this folder.
//
// A warp computes 16 queries. Scores, softmax and sums are in fp32; probabilities are rounded to
// the type of the values. A row has the same bits in every tile: the tiles of keys begin at
// multiples of kTensorTile.
#pragma once

#include "kernels/cuda/attention/attention_forward.cuh"
#include "kernels/cuda/attention/kept_pairs.cuh"
#include "kernels/cuda/attention/tensor_tiles.cuh"

namespace piton::cuda {

// Two tiles of keys and of values, and two words of kept pairs for each query: one of each is used,
// the other filled.
inline std::size_t tensor_shared_bytes(int steps) {
  return sizeof(std::uint16_t) * static_cast<std::size_t>(4 * kTensorTile * (16 * steps + 8)) +
         2 * sizeof(std::uint32_t) * kKeptWords;
}

// The scores of 16 queries and the keys of a step, in a warp: row g + 8 i of the queries has
// numbers 2 i and 2 i + 1 of each block of 8 keys (tensor_cores.cuh).
inline constexpr int kKeyBlocks = kTensorTile / 8;
struct WarpScores {
  float block[kKeyBlocks][4];
};

// The softmax of the two rows of a lane. `unit`, above 0: of scores, in powers of two. `sum` is of
// the lane's own columns.
struct LaneSoftmax {
  float unit;
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
      const float base = most == kNothing ? 0.0F : most * unit;
      corrections[i] = power_of_two(fmaf(largest[i], unit, -base));
      sum[i] *= corrections[i];
      for (int j = 0; j < kKeyBlocks; ++j) {
        for (int e = 2 * i; e < 2 * i + 2; ++e) {
          float& score = scores.block[j][e];
          score = power_of_two(fmaf(score, unit, -base));
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
  int sample;
  int head;
  int index[2];
  int position[2];
  Bounds bounds[2];

  // Whether query i of the lane sees key begin + column, one of the first `count`.
  __device__ bool sees(int i, int begin, int column, int count) const {
    const int key = begin + (column < count ? column : 0);
    const std::int64_t at = sight.key_position(sample, key);
    return column < count && at >= bounds[i].first && at <= bounds[i].last &&
           sight.same_segment(sample, index[i], key);
  }

  // Hides the keys that a query does not see. `count`: keys of the step, from key `begin` on.
  __device__ void mask(WarpScores& scores, int begin, int count) const {
    if (sight.has_neighbors()) return mask_columns(scores, begin, count);
    hide(scores, hidden(begin, count));
  }

  // Which scores are of keys that a query does not see: a bit for each.
  __device__ std::uint32_t hidden(int begin, int count) const {
    static_assert(4 * kKeyBlocks <= 32);
    const int pair = static_cast<int>(threadIdx.x % 4);
    std::uint32_t bits = 0;
#pragma unroll 1  // all at a time need more registers
    for (int i = 0; i < 2 * kKeyBlocks; ++i) {
      const int column = i / 2 * 8 + 2 * pair + i % 2;
      for (int own = 0; own < 2; ++own) {
        if (!sees(own, begin, column, count)) bits |= 1U << (i / 2 * 4 + 2 * own + i % 2);
      }
    }
    return bits;
  }

  __device__ static void hide(WarpScores& scores, std::uint32_t bits) {
    for_each_block<4 * kKeyBlocks>([&](int i) {
      if ((bits >> i & 1U) != 0) scores.block[i / 4][i % 4] = kNothing;
    });
  }

  // The same where each query sees neighboring keys.
  __device__ void mask_columns(WarpScores& scores, int begin, int count) const {
    const Columns seen[2] = {keys_of(bounds[0], begin, count), keys_of(bounds[1], begin, count)};
    const int pair = static_cast<int>(threadIdx.x % 4);
    for_each_block<4 * kKeyBlocks>([&](int i) {
      if (!seen[i % 4 / 2].has(i / 4 * 8 + 2 * pair + i % 2)) scores.block[i / 4][i % 4] = kNothing;
    });
  }

  // From products to scores, by the rules: one after the other, as they need many registers.
  __device__ void apply_rules(WarpScores& scores, int begin, int count) const {
    const int pair = static_cast<int>(threadIdx.x % 4);
    WarpScores all = scores;
#pragma unroll 1
    for (int i = 0; i < 4 * kKeyBlocks; ++i) {
      const int e = i % 4;
      const int column = i / 4 * 8 + 2 * pair + e % 2;
      float& score = all.block[i / 4][e];
      if (!sees(e / 2, begin, column, count)) {
        score = kNothing;
        continue;
      }
      float unused = 0;
      score = rules.score(score, &unused) +
              sight.added(head, sight.key_position(sample, begin + column) - position[e / 2]);
    }
    scores = all;
  }

  // Multiplies probabilities by the factors of dropout. `kept`: those of the warp's first query.
  __device__ void drop(WarpScores& scores, const std::uint32_t* kept) const {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    const auto factor = static_cast<float>(rules.site.kept);
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t* words = kept + (lane / 4 + 8 * i) * kWordsOfRow;
      const std::uint32_t of_columns[kWordsOfRow] = {words[0] >> lane % 4 * 2,
                                                     words[1] >> lane % 4 * 2};
      for_each_block<kKeyBlocks>([&](int j) {
        const std::uint32_t bits = of_columns[j / 4] >> j % 4 * 8;
        float& low = scores.block[j][2 * i];
        float& high = scores.block[j][2 * i + 1];
        low *= (bits & 1U) != 0 ? factor : 0.0F;
        high *= (bits & 2U) != 0 ? factor : 0.0F;
      });
    }
  }
};

// Whether a score is a scaled product: those remain products.
__host__ __device__ inline bool has_plain_scores(const KeySight& sight, const ScoreRules& rules) {
  return rules.cap == 0 && rules.scale > 0 && sight.slopes == nullptr && sight.bias == nullptr;
}

// The queries of a lane in the warp whose first query in the tile is `own`, of `rows`.
template <typename T>
__device__ LaneQueries lane_queries(const QueryTile<T>& tile, const KeySight& sight,
                                    const ScoreRules& rules, int own, int rows) {
  LaneQueries queries{.sight = sight,
                      .rules = rules,
                      .sample = static_cast<int>(tile.sample),
                      .head = static_cast<int>(tile.head)};
  for (int i = 0; i < 2; ++i) {
    const int row = static_cast<int>(threadIdx.x % kWarp / 4) + 8 * i;
    queries.index[i] = static_cast<int>(tile.first) + (row < rows ? own + row : 0);
    const Positions place = sight.place_of(tile.sample, queries.index[i]);
    queries.position[i] = in_32_bits(place.first);
    queries.bounds[i] = sight.bounds_of(place);
  }
  return queries;
}

// Finds the first step from `begin` on with a key that some query may see. `whole`: of all queries.
__device__ inline bool find_keys(const KeySight& sight, std::int64_t sample, const Positions& whole,
                                 int keys, int& begin) {
  for (; begin < keys; begin += kTensorTile) {
    const int end = keys < begin + kTensorTile ? keys : begin + kTensorTile;
    if (sight.meets(whole, sight.key_position(sample, begin), sight.key_position(sample, end - 1)))
      return true;
  }
  return false;
}

// Writes the rows of a warp. `natural`: of a score.
template <typename T, int kSteps>
__device__ void write_rows(const float (&sums)[2 * kSteps][4], const LaneSoftmax& softmax,
                           const QueryTile<T>& tile, int own, float natural) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int left = tile.count - own;
  const int rows = left < 16 ? left : 16;
  WrittenRows<T> written{.first = tile.out + own * tile.out_stride,
                         .stride = tile.out_stride,
                         .count = rows,
                         .d = tile.d};
  for (int i = 0; i < 2; ++i) {
    const float sum = softmax.whole_sum(i);
    written.factor[i] = sum == 0 ? 0.0F : 1.0F / sum;
    const int row = lane / 4 + 8 * i;
    if (tile.lse != nullptr && lane % 4 == 0 && row < rows)
      tile.lse[own + row] = sum == 0 ? kNothing : softmax.largest[i] * natural + logf(sum);
  }
  write_sums<T, kSteps>(sums, written);
}

// As attend(), by kTensorThreads threads, for heads of at most 16 kSteps channels. While the tiles
// of a step are multiplied, those of the next one are copied. `kPlain`: scores are known to be
// plain, and there is no dropout; rows have the same bits without it.
template <typename T, int kSteps, bool kPlain, typename KeyRow, typename ValueRow>
__device__ void attend_on_tensor_cores(const QueryTile<T>& tile, const KeySight& sight,
                                       const ScoreRules& rules, const KeyRow& key_row,
                                       const ValueRow& value_row) {
  const int own = static_cast<int>(threadIdx.x / kWarp) * 16;  // query of the warp, in the tile
  const int left = tile.count - own;
  const int rows = left < 16 ? left : 16;  // of the warp; at most 0: none
  const auto keys_of = [](int stage) {
    return shared_array<T>() + 2 * stage * kTensorNumbers<kSteps>;
  };
  const auto values_of = [&](int stage) { return keys_of(stage) + kTensorNumbers<kSteps>; };
  const auto kept_of = [](int stage) {
    return reinterpret_cast<std::uint32_t*>(shared_array<T>() + 4 * kTensorNumbers<kSteps>) +
           stage * kKeptWords;
  };
  const bool drops = !kPlain && rules.site.draws;
  const int keys = static_cast<int>(sight.key_count(tile.sample));
  const Positions whole = range_of_tile(sight, tile.sample, tile.first, tile.count);
  const auto load = [&](int stage, int begin) {
    const int count = keys - begin < kTensorTile ? keys - begin : kTensorTile;
    load_rows<T, kSteps>(keys_of(stage), count, tile.d, tile.vectors,
                         [&](int i) { return key_row(begin + i); });
    load_rows<T, kSteps>(values_of(stage), count, tile.d, tile.vectors,
                         [&](int i) { return value_row(begin + i); });
    if (!drops) return;
    draw_kept(kept_of(stage), rules,
              {tile.sample, tile.head, sight.key_position(tile.sample, begin)}, [&](int row) {
                return sight.place_of(tile.sample, tile.first + (row < tile.count ? row : 0)).first;
              });
  };
  int begin = 0;
  bool more = find_keys(sight, tile.sample, whole, keys, begin);
  load_rows<T, kSteps>(keys_of(1), tile.count, tile.d, tile.vectors,
                       [&](int i) { return tile.q + i * tile.q_stride; });
  if (more) load(0, begin);
  wait_for_copies();
  __syncthreads();
  std::uint32_t q[kSteps][4];
  read_left<T, kSteps>(q, keys_of(1) + own * kTensorPitch<kSteps>);
  const LaneQueries queries = lane_queries(tile, sight, rules, own, rows);
  const Positions range =
      rows > 0 ? query_range(sight, tile.sample, tile.first + own, rows) : whole;
  const bool plain = kPlain || has_plain_scores(sight, rules);
  const float natural = plain ? rules.scale : 1.0F;  // of a score
  float sums[2 * kSteps][4] = {};
  LaneSoftmax softmax{.unit = natural * kLogE2};
  for (int stage = 0; more; stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // the tiles are there, and those of the other stage have been read
    const int now = begin;
    begin += kTensorTile;
    more = find_keys(sight, tile.sample, whole, keys, begin);
    if (more) load(stage ^ 1, begin);
    const int count = keys - now < kTensorTile ? keys - now : kTensorTile;
    const std::int64_t low = sight.key_position(tile.sample, now);
    const std::int64_t high = sight.key_position(tile.sample, now + count - 1);
    if (rows <= 0 || !sight.meets(range, low, high)) continue;  // the whole warp
    WarpScores scores;
    multiply_by_rows<T, kSteps>(scores.block, q, keys_of(stage));
    if (!plain) {
      queries.apply_rules(scores, now, count);
    } else if (count < kTensorTile || !sight.covers(range, low, high)) {
      queries.mask(scores, now, count);
    }
    float corrections[2];
    softmax.take(scores, corrections);
    if (drops) queries.drop(scores, kept_of(stage) + own * kWordsOfRow);
    for (auto& block : sums) {
      for (int e = 0; e < 4; ++e) block[e] *= corrections[e / 2];
    }
    add_weighted<T, kSteps>(sums, scores.block, values_of(stage));
  }
  if (rows > 0) write_rows<T, kSteps>(sums, softmax, tile, own, natural);
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

template <typename T, int kChannels, bool kPlain = false, typename KeyRow, typename ValueRow>
__device__ void attend_in_shape(const QueryTile<T>& tile, const KeySight& sight,
                                const ScoreRules& rules, const KeyRow& key_row,
                                const ValueRow& value_row) {
  if constexpr (ForwardShape<T, kChannels>::kOnTensorCores) {
    attend_on_tensor_cores<T, kChannels / 2, kPlain>(tile, sight, rules, key_row, value_row);
  } else {
    attend<T, kChannels>(tile, sight, rules, key_row, value_row);
  }
}

}  // namespace piton::cuda
