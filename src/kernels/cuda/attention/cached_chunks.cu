// Attention to a cache by chunks of keys, on tensor cores. A block has a chunk, a key head and 16
// of its queries (the heads that share the key head, of all rows), so that grouped queries read the
// cache once. Its warps take 16 keys each in turn. A lane reads 16 consecutive bytes of a key or a
// value and uses them as its pairs of fragments, with channels in another order
// (tensor_cores.cuh): nothing but the sums of the warps passes through shared memory.
#include "kernels/cuda/attention/arrivals.cuh"
#include "kernels/cuda/attention/cached_chunks.h"
#include "kernels/cuda/attention/chunk_sums.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/vector.cuh"

namespace piton::cuda {
namespace {

constexpr int kChunkKeys = 128;
constexpr int kChunkWarps = 4;
constexpr int kTileQueries = 16;
constexpr int kStepKeys = 16;

// What blocks leave of their chunks for the last one of a text, a key head and its queries: of each
// row and head, sums over keys of exp(score - largest) times the value, `largest`, and the sum of
// these weights.
struct ChunkSums {
  float* values;   // [n, a, chunks, d]
  float* softmax;  // [n, a, chunks, 2]
  std::int64_t chunks;
  unsigned* arrivals;  // of blockIdx.y and blockIdx.z
};

template <typename T, bool kCoded>
struct ChunkGrid {
  CachedGrid<T, kCoded> of;
  ChunkSums sums;
  std::int64_t heads;
  std::int64_t key_heads;
  std::int64_t first_sample;  // of the launch
};

__device__ inline std::uint32_t word_of(const uint4& vector, int i) {
  return i == 0 ? vector.x : i == 1 ? vector.y : i == 2 ? vector.z : vector.w;
}

// The queries of a block, and which of them a lane has.
struct ChunkQueries {
  std::int64_t first_row;  // of the sample, in the call
  std::int64_t first;      // of all queries of the key head: row * heads_per_key + head
  int count;
  std::int64_t key_head;
  std::int64_t heads_per_key;

  __device__ std::int64_t row(int i) const { return (first + i) / heads_per_key; }
  __device__ std::int64_t head(int i) const {
    return key_head * heads_per_key + (first + i) % heads_per_key;
  }
};

// The softmax of one row of a lane and its sum of the lane's own columns, over the steps so far.
struct StepSoftmax {
  float largest = kNothing;
  float sum = 0;

  // Makes the four scores of a step weights. Returns the factor of what was summed before.
  __device__ float take(float (&scores)[4]) {
    float most = largest;
    for (float score : scores) most = fmaxf(most, score);
    for (int distance = 2; distance > 0; distance /= 2)
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, distance));
    const float correction = most == kNothing ? 1.0F : exp2f((largest - most) * kLogE2);
    sum *= correction;
    for (float& score : scores) {
      score = score == kNothing ? 0.0F : exp2f((score - most) * kLogE2);
      sum += score;
    }
    largest = most;
    return correction;
  }
  __device__ float whole_sum() const {
    float all = sum;
    for (int distance = 2; distance > 0; distance /= 2)
      all += __shfl_xor_sync(kAllLanes, all, distance);
    return all;
  }
};

template <int kSteps>
constexpr int kSumPitch = 16 * kSteps + 1;  // the odd length spreads rows over the banks

// nvcc takes no constexpr functions of the host in kernels.
template <int kSteps>
constexpr std::size_t kChunkSharedBytes =
    sizeof(float) * kChunkWarps* kTileQueries*(kSumPitch<kSteps> + 2) + sizeof(unsigned);

// What a warp leaves in shared memory, of its lane's rows.
template <int kSteps>
__device__ void leave_sums(const float (&sums)[2 * kSteps][4], const StepSoftmax (&softmax)[2],
                           int count) {
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int g = static_cast<int>(threadIdx.x % kWarp / 4);
  const int pair = static_cast<int>(threadIdx.x % 4);
  float* values = shared_array<float>() + warp * kTileQueries * kSumPitch<kSteps>;
  float* ends = shared_array<float>() + kChunkWarps * kTileQueries * kSumPitch<kSteps> +
                warp * kTileQueries * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float sum = softmax[i].whole_sum();
    const int row = g + 8 * i;
    if (row >= count) continue;
#pragma unroll
    for (int n = 0; n < 2 * kSteps; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e)
        values[row * kSumPitch<kSteps> + n / 8 * 64 + 8 * (2 * pair + e) + n % 8] =
            sums[n][2 * i + e];
    }
    if (pair == 0) {
      ends[2 * row] = softmax[i].largest;
      ends[2 * row + 1] = sum;
    }
  }
}

// Adds what the warps have left, in order, and stores it: as the result if the text has one chunk.
template <typename T, int kSteps, bool kCoded>
__device__ void store_sums(const ChunkGrid<T, kCoded>& grid, const ChunkQueries& queries,
                           std::int64_t chunks) {
  const CachedGrid<T, kCoded>& of = grid.of;
  const float* values = shared_array<float>();
  const float* ends = values + kChunkWarps * kTileQueries * kSumPitch<kSteps>;
  const int d = static_cast<int>(of.d);
  for (int at = static_cast<int>(threadIdx.x); at < queries.count * d; at += kChunkWarps * kWarp) {
    const int query = at / d;
    const int c = at % d;
    float largest = kNothing;
    for (int warp = 0; warp < kChunkWarps; ++warp)
      largest = fmaxf(largest, ends[2 * (warp * kTileQueries + query)]);
    float sum = 0;
    float value = 0;
    for (int warp = 0; warp < kChunkWarps; ++warp) {
      const float* end = ends + 2 * (warp * kTileQueries + query);
      const float weight = chunk_weight(end[0], end[1], largest);
      sum = fmaf(weight, end[1], sum);
      value = fmaf(weight, values[(warp * kTileQueries + query) * kSumPitch<kSteps> + c], value);
    }
    const std::int64_t row = queries.first_row + queries.row(query);
    const std::int64_t head = queries.head(query);
    if (chunks == 1) {
      of.out[row * of.out_stride + head * of.out_head_stride + c] =
          narrow<T>(sum == 0 ? 0.0F : value / sum);
      if (c == 0 && of.lse != nullptr) of.lse[head * of.lse_rows + row] = lse_of(largest, sum);
      continue;
    }
    const std::int64_t place = (row * grid.heads + head) * grid.sums.chunks + blockIdx.x;
    grid.sums.values[place * d + c] = value;
    if (c == 0) {
      grid.sums.softmax[2 * place] = largest;
      grid.sums.softmax[2 * place + 1] = sum;
    }
  }
}

// Merges the chunks of the block's queries, in order: a warp finds the largest score of a query,
// then a thread has four channels of one.
template <typename T, bool kCoded>
__device__ void merge_chunks(const ChunkGrid<T, kCoded>& grid, const ChunkQueries& queries,
                             std::int64_t chunks) {
  constexpr int kChannels = 4;
  const CachedGrid<T, kCoded>& of = grid.of;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const auto place = [&](int query) {
    const std::int64_t row = queries.first_row + queries.row(query);
    return (row * grid.heads + queries.head(query)) * grid.sums.chunks;
  };
  float* most = shared_array<float>();  // [kTileQueries]
  for (int query = static_cast<int>(threadIdx.x / kWarp); query < queries.count;
       query += kChunkWarps) {
    const float* softmax = grid.sums.softmax + 2 * place(query);
    float largest = kNothing;
    for (std::int64_t chunk = lane; chunk < chunks; chunk += kWarp)
      largest = fmaxf(largest, softmax[2 * chunk]);
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    if (lane == 0) most[query] = largest;
  }
  __syncthreads();
  const int d = static_cast<int>(of.d);
  const int in_query = (d + kChannels - 1) / kChannels;
  for (int at = static_cast<int>(threadIdx.x); at < queries.count * in_query;
       at += kChunkWarps * kWarp) {
    const int query = at / in_query;
    const int first = at % in_query * kChannels;
    const float* softmax = grid.sums.softmax + 2 * place(query);
    const float* values = grid.sums.values + place(query) * d + first;
    const float largest = most[query];
    float value[kChannels] = {};
    float sum = 0;
#pragma unroll 4
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      Numbers<float, kChannels> numbers{};
      if (d % kChannels == 0) {
        numbers = load<kChannels>(values + chunk * d);
      } else {
        for (int i = 0; i < kChannels && first + i < d; ++i) numbers.at[i] = values[chunk * d + i];
      }
      const float weight = chunk_weight(softmax[2 * chunk], softmax[2 * chunk + 1], largest);
      sum = fmaf(weight, softmax[2 * chunk + 1], sum);
#pragma unroll
      for (int i = 0; i < kChannels; ++i) value[i] = fmaf(weight, numbers.at[i], value[i]);
    }
    const std::int64_t row = queries.first_row + queries.row(query);
    const std::int64_t head = queries.head(query);
    if (first == 0 && of.lse != nullptr) of.lse[head * of.lse_rows + row] = lse_of(largest, sum);
    T* out = of.out + row * of.out_stride + head * of.out_head_stride + first;
    for (int i = 0; i < kChannels && first + i < d; ++i)
      out[i] = narrow<T>(sum == 0 ? 0.0F : value[i] / sum);
  }
}

// What the warps have left, of a text of `keys` keys: the last block of the text merges its chunks.
template <typename T, int kSteps, bool kCoded>
__device__ void finish_chunk(const ChunkGrid<T, kCoded>& grid, const ChunkQueries& queries,
                             std::int64_t keys) {
  const std::int64_t chunks = (keys + kChunkKeys - 1) / kChunkKeys;
  store_sums<T, kSteps, kCoded>(grid, queries, chunks);
  if (chunks == 1) return;
  unsigned* last = shared_array<unsigned>(kChunkSharedBytes<kSteps> - sizeof(unsigned));
  unsigned* counter = grid.sums.arrivals + blockIdx.z * gridDim.y + blockIdx.y;
  if (is_last_to_arrive(counter, static_cast<unsigned>(chunks), last))
    merge_chunks(grid, queries, chunks);
}

// Where the keys of a step are, all in one page, and how many of them there are.
struct StepPlace {
  std::int64_t page;
  std::int64_t in_page;
  std::int64_t key_head;
  std::int64_t count;  // those behind are 0
};

// The keys and values of a step that a lane has: of key g of each block of 8, every fourth vector;
// of the four keys of its pairs, every eighth.
template <int kSteps>
struct StepRows {
  uint4 k[2][kSteps / 2];
  uint4 v[4][kSteps / 4];

  template <typename T, bool kCoded>
  __device__ void load_keys(const CachedGrid<T, kCoded>& of, const StepPlace& place) {
    const int g = static_cast<int>(threadIdx.x % kWarp / 4);
    const int pair = static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int at = 8 * j + g;
      const bool given = at < place.count;
      const auto row = of.keys.row(place.page, place.in_page + (given ? at : 0), place.key_head);
#pragma unroll
      for (int s = 0; s < kSteps / 2; ++s) {
        k[j][s] = uint4{0, 0, 0, 0};
        if (given) k[j][s] = eight_channels<T>(row, 32 * s + 8 * pair, of.d, of.vectors);
      }
    }
  }

  template <typename T, bool kCoded>
  __device__ void load_values(const CachedGrid<T, kCoded>& of, const StepPlace& place) {
    const int g = static_cast<int>(threadIdx.x % kWarp / 4);
    const int pair = static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = j / 2 * 8 + 2 * pair + j % 2;
      const bool given = at < place.count;
      const auto row = of.values.row(place.page, place.in_page + (given ? at : 0), place.key_head);
#pragma unroll
      for (int s = 0; s < kSteps / 4; ++s) {
        v[j][s] = uint4{0, 0, 0, 0};
        if (given) v[j][s] = eight_channels<T>(row, 64 * s + 8 * g, of.d, of.vectors);
      }
    }
  }
};

// products = q k^T
template <typename T, int kSteps>
__device__ void multiply_step(float (&products)[2][4], const uint4 (&q)[kSteps / 2][2],
                              const StepRows<kSteps>& rows) {
#pragma unroll
  for (int s = 0; s < kSteps / 2; ++s) {
    const std::uint32_t before[4] = {q[s][0].x, q[s][1].x, q[s][0].y, q[s][1].y};
    const std::uint32_t behind[4] = {q[s][0].z, q[s][1].z, q[s][0].w, q[s][1].w};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const std::uint32_t right[4] = {rows.k[j][s].x, rows.k[j][s].y, rows.k[j][s].z,
                                      rows.k[j][s].w};
      multiply_fragments<T>(products[j], before, right);
      multiply_fragments<T>(products[j], behind, right + 2);
    }
  }
}

// sums = sums corrections + weights v
template <typename T, int kSteps>
__device__ void add_step(float (&sums)[2 * kSteps][4], const float (&weights)[2][4],
                         const float (&corrections)[2], const StepRows<kSteps>& rows) {
  const std::uint32_t p[4] = {
      rounded_pair<T>(weights[0][0], weights[0][1]), rounded_pair<T>(weights[1][0], weights[1][1]),
      rounded_pair<T>(weights[0][2], weights[0][3]), rounded_pair<T>(weights[1][2], weights[1][3])};
#pragma unroll
  for (int n = 0; n < 2 * kSteps; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[n][e] *= corrections[e / 2];
    std::uint32_t right[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const std::uint32_t low = word_of(rows.v[2 * j][n / 8], n % 8 / 2);
      const std::uint32_t high = word_of(rows.v[2 * j + 1][n / 8], n % 8 / 2);
      right[j] = n % 2 == 0 ? (low & 0xFFFFU) | high << 16 : low >> 16 | (high & 0xFFFF0000U);
    }
    multiply_fragments<T>(sums[n], p, right);
  }
}

template <typename T, int kSteps, bool kCoded>
__global__ void __launch_bounds__(kChunkWarps* kWarp, 2)
    attend_to_chunk(ChunkGrid<T, kCoded> grid) {
  wait_for_previous();
  let_next_start();
  const CachedGrid<T, kCoded>& of = grid.of;
  const std::int64_t sample = grid.first_sample + blockIdx.z;
  const KeySight sight = of.sight_of_sample(sample);
  const std::int64_t begin = std::int64_t{blockIdx.x} * kChunkKeys;
  const std::int64_t first = std::int64_t{blockIdx.y} / grid.key_heads * kTileQueries;
  const std::int64_t left = sight.queries * of.heads_per_key - first;
  if (begin >= sight.keys || left <= 0) return;  // the whole block
  const ChunkQueries queries{.first_row = of.begins[sample],
                             .first = first,
                             .count = static_cast<int>(left < kTileQueries ? left : kTileQueries),
                             .key_head = std::int64_t{blockIdx.y} % grid.key_heads,
                             .heads_per_key = of.heads_per_key};
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int g = static_cast<int>(threadIdx.x % kWarp / 4);
  const int pair = static_cast<int>(threadIdx.x % 4);
  uint4 q[kSteps / 2][2];
  int heads[2];
  int positions[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int query = g + 8 * i < queries.count ? g + 8 * i : 0;
    heads[i] = static_cast<int>(queries.head(query));
    positions[i] = static_cast<int>(sight.query_begin + queries.row(query));
    const T* row =
        of.q + (queries.first_row + queries.row(query)) * of.q_stride + heads[i] * of.q_head_stride;
#pragma unroll
    for (int s = 0; s < kSteps / 2; ++s)
      q[s][i] = eight_channels<T>(row, 32 * s + 8 * pair, of.d, of.vectors);
  }
  const Positions range{sight.query_begin + queries.row(0),
                        sight.query_begin + queries.row(queries.count - 1),
                        sight.query_begin + queries.row(queries.count - 1)};
  float sums[2 * kSteps][4] = {};
  StepSoftmax softmax[2];
#pragma unroll 1
  for (std::int64_t key = begin + warp * kStepKeys; key < begin + kChunkKeys && key < sight.keys;
       key += kChunkWarps * kStepKeys) {
    if (!sight.meets(range, key, key + kStepKeys - 1)) continue;  // the whole warp
    StepRows<kSteps> rows;
    // Wide rows leave no registers for both at a time.
    constexpr bool kTogether = kSteps <= 4;
    const StepPlace place{of.table[sample * of.pages + key / kCachePage], key % kCachePage,
                          queries.key_head, sight.keys - key};
    rows.load_keys(of, place);
    if constexpr (kTogether) rows.load_values(of, place);
    float products[2][4] = {};
    multiply_step<T, kSteps>(products, q, rows);
    if constexpr (!kTogether) {
      __syncwarp();  // no load is moved before the products
      rows.load_values(of, place);
    }
    float weights[2][4];  // of the two rows of a lane, for two keys of each block of 8
    float corrections[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const std::int64_t at = key + e / 2 * 8 + 2 * pair + e % 2;
        const Positions place{positions[i], positions[i], positions[i]};
        float unused = 0;
        weights[i][e] = at < sight.keys && sight.meets(place, at, at)
                            ? of.rules.score(products[e / 2][2 * i + e % 2], &unused) +
                                  sight.added(heads[i], at - positions[i])
                            : kNothing;
      }
      corrections[i] = softmax[i].take(weights[i]);
    }
    add_step<T, kSteps>(sums, weights, corrections, rows);
  }
  leave_sums<kSteps>(sums, softmax, queries.count);
  __syncthreads();
  finish_chunk<T, kSteps, kCoded>(grid, queries, sight.keys);
}

// The most rows that a text of the call can have: all texts have one.
std::int64_t most_rows(const CachedAttention& call) {
  return call.q.dim(0) - call.lengths.elements() + 1;
}

template <typename T, int kSteps, bool kCoded>
void launch_chunks(const CachedAttention& call, const CallContext& context) {
  const cudaStream_t stream = context.stream;
  const std::int64_t rows = call.q.dim(0);
  const std::int64_t heads = call.q.dim(1);
  const std::int64_t d = call.q.dim(2);
  const std::int64_t key_heads = call.keys.dim(2);
  // The host does not know the lengths of the texts: blocks that are not needed return.
  const std::int64_t chunks = (call.table.dim(1) * kCachePage + kChunkKeys - 1) / kChunkKeys;
  const std::int64_t tiles =
      (most_rows(call) * (heads / key_heads) + kTileQueries - 1) / kTileQueries;
  Tensor parts;  // the values, then the softmax
  if (chunks > 1) parts = scratch(DType::kF32, {rows * heads * chunks * (d + 2)}, context);
  const std::int64_t in_sample = key_heads * tiles;
  PITON_ASSERT(in_sample <= kArrivals, "cuda: cached attention of {} heads", heads);
  ChunkGrid<T, kCoded> grid{.of = cached_grid<T, kCoded>(call),
                            .sums = {.values = pointer<float>(parts),
                                     .softmax = pointer<float>(parts) + rows * heads * chunks * d,
                                     .chunks = chunks,
                                     .arrivals = context.arrivals},
                            .heads = heads,
                            .key_heads = key_heads,
                            .first_sample = 0};
  const std::int64_t samples = call.lengths.elements();
  const std::int64_t at_once = kArrivals / in_sample;
  for (; grid.first_sample < samples; grid.first_sample += at_once) {
    const std::int64_t count = std::min(at_once, samples - grid.first_sample);
    launch("launch of cached attention, chunks", attend_to_chunk<T, kSteps, kCoded>,
           {.blocks = {static_cast<unsigned>(chunks), static_cast<unsigned>(in_sample),
                       static_cast<unsigned>(count)},
            .threads = kChunkWarps * kWarp,
            .shared_bytes = kChunkSharedBytes<kSteps>,
            .early = true},
           grid, stream);
  }
}

}  // namespace

bool has_few_queries(const CachedAttention& call) {
  return size_bytes(call.q.dtype()) == 2 && call.q.dim(2) <= 128 && most_rows(call) <= kFewQueries;
}

void attend_in_chunks(const CachedAttention& call, const CallContext& context) {
  with_floating(call.q.dtype(), [&]<typename T>(std::type_identity<T>) {
    if constexpr (sizeof(T) == 2) {
      const auto launch_all = [&]<int kSteps>(std::integral_constant<int, kSteps>) {
        if (call.key_scales.defined()) return launch_chunks<T, kSteps, true>(call, context);
        launch_chunks<T, kSteps, false>(call, context);
      };
      if (call.q.dim(2) <= 64) return launch_all(std::integral_constant<int, 4>{});
      launch_all(std::integral_constant<int, 8>{});
    }
  });
}

}  // namespace piton::cuda
