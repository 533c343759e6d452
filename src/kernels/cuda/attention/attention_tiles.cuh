// What the attention kernels share: masks, scores, and tiles of rows in shared memory. Internal to
// this folder.
//
// A block computes kTile rows (queries or keys) with kTile * kLanes threads: kLanes neighboring
// threads share a row. Lane p of a row computes the scores of columns p * kTile / kLanes .. of a
// tile, and sums channels p, p + kLanes, ... Tiles are in the type of sums, with rows of
// kLanes * kChannels + 1 numbers: the odd length keeps the rows of one column in different banks.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/attention.h"
#include "kernels/cuda/attention/head_matrix.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mask.cuh"

namespace piton::cuda {

inline constexpr int kLanes = 8;
inline constexpr float kNothing = -std::numeric_limits<float>::infinity();  // score of a hidden key

// Of a query, or of a tile of queries: the smallest and largest position, and the last position
// that one of them sees under a causal mask.
struct Positions {
  std::int64_t first;
  std::int64_t last;
  std::int64_t reach;
};

// The same in 32 bits, in which positions fit: for kernels without registers for more.
struct ShortPositions {
  int first;
  int last;
  int reach;

  __device__ explicit ShortPositions(const Positions& of)
      : first(static_cast<int>(of.first)),
        last(static_cast<int>(of.last)),
        reach(static_cast<int>(of.reach)) {}
  __device__ Positions wide() const { return {first, last, reach}; }
};

inline constexpr std::int64_t kMostPosition = std::numeric_limits<std::int32_t>::max();

// The first and the last position of a key that a query sees.
struct Bounds {
  int first;
  int last;
};

// Columns first .. last of a tile; none if last < first.
struct Columns {
  int first;
  int last;

  __device__ bool has(int column) const { return column >= first && column <= last; }
};

// Those of first .. last that are in a tile of at most 64 columns.
__device__ inline Columns columns_of(std::int64_t first, std::int64_t last) {
  constexpr std::int64_t kEnd = 64;
  return {static_cast<int>(first < 0 ? 0 : (first > kEnd ? kEnd : first)),
          static_cast<int>(last < -1 ? -1 : (last >= kEnd ? kEnd - 1 : last))};
}

// The columns that a query with these bounds sees of `count` neighboring keys, of which the first
// one has position `first`.
__device__ inline Columns keys_of(const Bounds& bounds, std::int64_t first, int count) {
  Columns seen = columns_of(bounds.first - first, bounds.last - first);
  if (seen.last >= count) seen.last = count - 1;
  return seen;
}

__device__ inline int in_32_bits(std::int64_t x) {
  return static_cast<int>(x > kMostPosition ? kMostPosition
                                            : (x < -kMostPosition ? -kMostPosition : x));
}

// Which keys a query sees (AttentionMask), and what is added to its scores, on the device.
struct KeySight {
  bool causal;
  bool bounded_before;
  bool bounded_after;
  std::int64_t before;
  std::int64_t after;
  std::int64_t query_begin;
  const std::int32_t* query_positions;  // or nullptr, as all pointers here
  const std::int32_t* key_positions;
  const std::int32_t* query_reach;
  const std::int32_t* key_lengths;
  const std::int32_t* query_segments;
  const std::int32_t* key_segments;
  const float* slopes;
  const float* bias;  // [a, bias_width]
  std::int64_t bias_width;
  std::int64_t bias_origin;
  std::int64_t queries;  // of a sample
  std::int64_t keys;

  __device__ std::int64_t query_position(std::int64_t sample, std::int64_t query) const {
    return query_positions != nullptr ? query_positions[sample * queries + query]
                                      : query_begin + query;
  }
  __device__ Positions place_of(std::int64_t sample, std::int64_t query) const {
    const std::int64_t position = query_position(sample, query);
    if (query_reach == nullptr) return {position, position, position};
    const std::int64_t reach = query_reach[sample * queries + query];
    return {position, position, reach > position ? reach : position};
  }
  __device__ std::int64_t key_position(std::int64_t sample, std::int64_t key) const {
    return key_positions != nullptr ? key_positions[sample * keys + key] : key;
  }
  __device__ std::int64_t key_count(std::int64_t sample) const {
    if (key_lengths == nullptr) return keys;
    const std::int64_t length = key_lengths[sample];
    return length < keys ? length : keys;
  }
  __device__ bool same_segment(std::int64_t sample, std::int64_t query, std::int64_t key) const {
    return query_segments == nullptr ||
           query_segments[sample * queries + query] == key_segments[sample * keys + key];
  }
  // By positions: whether some of these queries may see some key of low .. high.
  __device__ bool meets(const Positions& of, std::int64_t low, std::int64_t high) const {
    if (causal && low > of.reach) return false;
    if (bounded_before && of.first - high > before) return false;
    return !(bounded_after && low - of.last > after);
  }
  // By positions: whether each of these queries sees all keys of low .. high.
  __device__ bool covers(const Positions& of, std::int64_t low, std::int64_t high) const {
    if (query_segments != nullptr || (causal && high > of.first)) return false;
    if (bounded_before && of.last - low > before) return false;
    return !(bounded_after && high - of.first > after);
  }
  // Of neighboring queries of which the first one has this index: those that see a key.
  __device__ Columns queries_of(std::int64_t index, std::int64_t key_position) const {
    const std::int64_t distance = key_position - (query_begin + index);
    std::int64_t first = 0;
    std::int64_t last = queries - index - 1;
    if (causal && distance > first) first = distance;
    if (bounded_after && distance - after > first) first = distance - after;
    if (bounded_before && distance + before < last) last = distance + before;
    return columns_of(first, last);
  }
  // Of one query. Positions fit in 32 bits.
  __device__ Bounds bounds_of(const Positions& of) const {
    Bounds bounds{static_cast<int>(-kMostPosition), static_cast<int>(kMostPosition)};
    if (causal) bounds.last = in_32_bits(of.reach);
    if (bounded_before) bounds.first = in_32_bits(of.first - before);
    if (bounded_after) {
      const int last = in_32_bits(of.first + after);
      if (last < bounds.last) bounds.last = last;
    }
    return bounds;
  }
  // Whether a query sees a row of neighboring keys, and a key is seen by a row of neighboring
  // queries: positions follow from indices, and there is one segment.
  __device__ bool has_neighbors() const {
    return query_positions == nullptr && key_positions == nullptr && query_reach == nullptr &&
           query_segments == nullptr;
  }
  // What is added to the score of a visible pair. `distance`: from the query to the key.
  __device__ float added(std::int64_t head, std::int64_t distance) const {
    float sum = 0;
    if (slopes != nullptr) sum = slopes[head] * static_cast<float>(distance);
    if (bias != nullptr) sum += bias[head * bias_width + distance + bias_origin];
    return sum;
  }
};

inline KeySight sight_of(const AttentionMask& mask, std::int64_t queries, std::int64_t keys) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;  // a window as wide as any
  return {.causal = mask.causal,
          .bounded_before = mask.window_before.has_value(),
          .bounded_after = mask.window_after.has_value(),
          .before = std::clamp(mask.window_before.value_or(0), -kMost, kMost),
          .after = std::clamp(mask.window_after.value_or(0), -kMost, kMost),
          .query_begin = mask.query_begin,
          .query_positions = pointer<const std::int32_t>(mask.query_positions),
          .key_positions = pointer<const std::int32_t>(mask.key_positions),
          .query_reach = pointer<const std::int32_t>(mask.query_reach),
          .key_lengths = pointer<const std::int32_t>(mask.key_lengths),
          .query_segments = pointer<const std::int32_t>(mask.query_segments),
          .key_segments = pointer<const std::int32_t>(mask.key_segments),
          .slopes = pointer<const float>(mask.slopes),
          .bias = pointer<const float>(mask.bias),
          .bias_width = mask.bias.defined() ? mask.bias.dim(1) : 0,
          .bias_origin = mask.bias_origin,
          .queries = queries,
          .keys = keys};
}

// Of queries begin .. begin + count - 1, at most kWarp. All threads of a warp call it.
__device__ inline Positions query_range(const KeySight& sight, std::int64_t sample,
                                        std::int64_t begin, int count) {
  if (sight.query_positions == nullptr && sight.query_reach == nullptr) {
    const std::int64_t first = sight.query_begin + begin;
    return {first, first + count - 1, first + count - 1};
  }
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  Positions range = sight.place_of(sample, begin + (lane < count ? lane : 0));
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const std::int64_t first = __shfl_xor_sync(kAllLanes, range.first, distance);
    const std::int64_t last = __shfl_xor_sync(kAllLanes, range.last, distance);
    const std::int64_t reach = __shfl_xor_sync(kAllLanes, range.reach, distance);
    if (first < range.first) range.first = first;
    if (last > range.last) range.last = last;
    if (reach > range.reach) range.reach = reach;
  }
  return range;
}

// From a product q . k to a score, and on to dropout.
struct ScoreRules {
  float scale;
  float cap;  // 0: none
  MaskSite site;
  std::int64_t head_begin;

  // `slope`: of the score, with respect to the scaled product.
  __device__ float score(float product, float* slope) const {
    const float scaled = scale * product;
    *slope = 1;
    if (cap == 0) return scaled;
    const float bent = tanhf(scaled / cap);
    *slope = 1.0F - bent * bent;
    return cap * bent;
  }
  __device__ float factor(std::int64_t sample, std::int64_t head, std::int64_t query_position,
                          std::int64_t key_position) const {
    if (!site.draws) return 1;
    const MaskWords drawn = site.words(sample, head_begin + head, query_position, key_position);
    return site.keeps(drawn.word[key_position % 4]) ? static_cast<float>(site.kept) : 0.0F;
  }
};

// Of AttentionForward or AttentionBackward.
template <typename Call>
ScoreRules rules_of(const Call& call) {
  return {.scale = static_cast<float>(call.scale),
          .cap = static_cast<float>(call.soft_cap),
          .site = mask_site(call.dropout),
          .head_begin = call.head_begin};
}

// Widens `count` rows of d channels into a tile with rows of kWidth numbers; all else is 0. A warp
// reads one row at a time. `row_of(i)` is row i: an address, or CodedHeadRow.
template <int kTile, int kWidth, typename RowOf>
__device__ void load_tile(float* tile, int count, std::int64_t d, const RowOf& row_of) {
  const int warps = kTile * kLanes / kWarp;
  for (int i = static_cast<int>(threadIdx.x / kWarp); i < kTile; i += warps) {
    for (int c = static_cast<int>(threadIdx.x % kWarp); c < kWidth; c += kWarp) {
      tile[i * kWidth + c] = i < count && c < d ? widen(row_of(i)[c]) : 0.0F;
    }
  }
}

// The largest (the sum) over the lanes of a row; every lane gets it.
__device__ inline float row_largest(float x) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  }
  return x;
}
__device__ inline float row_sum(float x) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  return x;
}

// products[j] = row `row` of `left` times row first + j of `right`, over `d` channels.
template <int kColumns, int kWidth>
__device__ void multiply_rows(float* products, const float* left, int row, const float* right,
                              int first, std::int64_t d) {
  for (int j = 0; j < kColumns; ++j) products[j] = 0;
  for (std::int64_t c = 0; c < d; ++c) {
    const float x = left[row * kWidth + c];
    for (int j = 0; j < kColumns; ++j) {
      products[j] = fmaf(x, right[(first + j) * kWidth + c], products[j]);
    }
  }
}

// sums[i] += sum over the first `count` columns of weights[row] times channel i of the tile's rows.
template <int kTile, int kChannels>
__device__ void add_weighted_rows(float* sums, const float* weights, int row, const float* tile,
                                  int count) {
  constexpr int kWidth = kLanes * kChannels + 1;
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  for (int j = 0; j < count; ++j) {
    const float weight = weights[row * (kTile + 1) + j];
    for (int i = 0; i < kChannels; ++i) {
      sums[i] = fmaf(weight, tile[j * kWidth + lane + kLanes * i], sums[i]);
    }
  }
}

// use(std::type_identity<T>, std::integral_constant<int, channels>) for heads of d channels: as
// many as a lane needs. Throws Error(kUsage) for fp64 and for d above 256.
template <typename Use>
void with_heads(DType dtype, std::int64_t d, Use use) {
  if (dtype == DType::kF64 || d > 256) {
    throw Error(Fault::kUsage,
                "cuda: attention in {} with heads of {} channels: wanted fp32, bf16 or fp16 and at "
                "most 256; use --kernels cpu",
                name(dtype), d);
  }
  with_floating(dtype, [&]<typename T>(std::type_identity<T> type) {
    if constexpr (!std::is_same_v<T, double>) {
      if (d <= 64) return use(type, std::integral_constant<int, 8>{});
      if (d <= 128) return use(type, std::integral_constant<int, 16>{});
      use(type, std::integral_constant<int, 32>{});
    }
  });
}

}  // namespace piton::cuda
