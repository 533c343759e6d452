// Attention to latents on tensor cores, in 16-bit types. Queries and a step of keys are in shared
// memory, and the rows of the step are read twice from there: as keys of all queries, then as their
// values. A warp has 16 queries and 8 keys of the scores, the softmax of every eighth query, and
// every eighth block of 16 channels of the sums. If a text has no more than 16 queries, the next
// step is copied while one is used.
#include "kernels/cuda/attention/latent_grid.cuh"

namespace piton::cuda {
namespace {

constexpr int kLatentStep = 32;                      // keys
constexpr int kLatentQueries = 16;                   // queries of a product
constexpr int kLatentScorePitch = kLatentStep + 1;   // the odd length spreads rows over the banks
constexpr int kLatentWeightPitch = kLatentStep + 8;  // as kTensorPitch
constexpr int kLatentRowsOfWarp = kLatentTile / kWarps;  // whose softmax it has
constexpr int kLatentBlocksOfWarp = static_cast<int>(kMostLatents) / 16 / kWarps;
// The smallest maximum of a GPU, less what CUDA takes of a block.
constexpr std::int64_t kMostLatentBytes = 99 * 1024;

// Shared memory of a block, in bytes.
struct LatentMemory {
  int tile;      // queries
  int channels;  // of a row, rounded up to those of two products
  int stages;    // steps of keys

  __host__ __device__ int pitch() const { return channels + 8; }
  __host__ __device__ int queries() const { return 0; }
  __host__ __device__ int keys() const { return 2 * tile * pitch(); }
  __host__ __device__ int step() const { return 2 * kLatentStep * pitch(); }
  // Weights are in the type of latents, [tile, kLatentWeightPitch].
  __host__ __device__ int weights() const { return keys() + stages * step(); }
  // Scores are in fp32 [kLatentTile, kLatentScorePitch]: of a narrow tile, two summands of each.
  __host__ __device__ int scores() const { return weights() + 2 * tile * kLatentWeightPitch; }
  __host__ __device__ int bounds() const {
    return scores() + static_cast<int>(sizeof(float)) * kLatentTile * kLatentScorePitch;
  }
  // Largest score and sum of a query, and the factor of a step.
  __host__ __device__ int ends() const { return bounds() + 8 * tile; }
  __host__ __device__ int factors() const { return ends() + 8 * tile; }
  // The block's LatentShare, which would take registers all the time.
  __host__ __device__ int share() const { return factors() + 4 * tile; }
  __host__ __device__ int bytes() const { return share() + static_cast<int>(sizeof(LatentShare)); }
};

template <typename T, bool kCoded>
struct StagedGrid {
  LatentGrid<T, kCoded> grid;
  LatentMemory memory;
};

// Starts to copy a row of d channels, or zeros, to one of shared memory. A warp calls it.
template <typename T>
__device__ void copy_latent_row(T* to, const T* from, bool given, int d, int channels,
                                bool vectors) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  if (vectors) {
#pragma unroll 1
    for (int c = 8 * lane; c < channels; c += 8 * kWarp) {
      const int left = given && c < d ? d - c : 0;
      start_copy(to + c, left > 0 ? from + c : from,
                 left > 8 ? static_cast<int>(sizeof(uint4)) : left * static_cast<int>(sizeof(T)));
    }
    return;
  }
#pragma unroll 1
  for (int c = lane; c < channels; c += kWarp) to[c] = given && c < d ? from[c] : narrow<T>(0.0F);
}

// Keys begin .. begin + count - 1 of the block's text, which are a step. They are in one page.
struct StepOfKeys {
  int begin;
  int count;

  __device__ static StepOfKeys of(const LatentShare& share, int begin) {
    const int left = share.end - begin;
    return {begin, left < kLatentStep ? left : kLatentStep};
  }
  template <typename T, bool kCoded>
  __device__ std::int64_t page(const CachedGrid<T, kCoded>& of) const {
    static_assert(kCachePage % kLatentStep == 0);
    return of.table[static_cast<int>(blockIdx.y) * static_cast<int>(of.pages) +
                    begin / static_cast<int>(kCachePage)];
  }
  // The row of the page that has key i; of those that are not given, that of the first one.
  __device__ int in_page(int i) const {
    return begin % static_cast<int>(kCachePage) + (i < count ? i : 0);
  }
};

// Codes are copied as they are to the second half of the place of their row, which is expanded when
// they are there; so the copy does not wait. Not if rows are no vectors, or eight channels have two
// scales: those are expanded at once.
template <typename T>
__device__ bool copies_codes(const StagedGrid<T, true>& all) {
  return all.grid.of.vectors && all.grid.sums.latents % 8 == 0;
}

// Starts to copy the rows of a step. A warp copies every eighth row.
template <typename T, bool kCoded>
__device__ void copy_latent_step(T* to, const StagedGrid<T, kCoded>& all, const StepOfKeys& step) {
  const CachedGrid<T, kCoded>& of = all.grid.of;
  const std::int64_t page = step.page(of);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
#pragma unroll 1  // the copies do not wait, and addresses of all would take many registers
  for (int i = static_cast<int>(threadIdx.x / kWarp); i < kLatentStep; i += kWarps) {
    const bool given = i < step.count;
    T* row = to + i * all.memory.pitch();
    if constexpr (kCoded) {
      const CodedHeadRow<T> codes = of.keys.row(page, step.in_page(i), 0);
      if (copies_codes(all)) {
        auto* bytes = reinterpret_cast<std::int8_t*>(row) + all.memory.channels;
#pragma unroll 1
        for (int c = 16 * lane; c < of.d; c += 16 * kWarp) {
          const int left = given ? static_cast<int>(of.d) - c : 0;
          start_copy(bytes + c, codes.codes + c, left < 16 ? left : 16);
        }
        continue;
      }
      const CodedHeadRow<T> latent = of.values.row(page, step.in_page(i), 0);
#pragma unroll 1
      for (int c = lane; c < all.memory.channels; c += kWarp) {
        row[c] = !given || c >= of.d         ? narrow<T>(0.0F)
                 : c < all.grid.sums.latents ? latent[c]
                                             : codes[c];
      }
    } else {
      copy_latent_row(row, of.keys.row(page, step.in_page(i), 0), given, static_cast<int>(of.d),
                      all.memory.channels, of.vectors);
    }
  }
}

// Expands the rows that a warp has copied, if they are codes.
template <typename T>
__device__ void expand_latent_step(T* rows, const StagedGrid<T, true>& all,
                                   const StepOfKeys& step) {
  if (!copies_codes(all)) return;
  const CachedGrid<T, true>& of = all.grid.of;
  const std::int64_t page = step.page(of);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  __syncwarp();  // the copies of all lanes have ended
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x / kWarp); i < kLatentStep; i += kWarps) {
    T* row = rows + i * all.memory.pitch();
    const auto* bytes = reinterpret_cast<const std::int8_t*>(row) + all.memory.channels;
    const float scale = of.keys.row(page, step.in_page(i), 0).scale;
    const float latent_scale = of.values.row(page, step.in_page(i), 0).scale;
    // What is written in a turn is not over codes of a later one: these are twice as dense.
#pragma unroll 1
    for (int first = 0; first < all.memory.channels; first += 8 * kWarp) {
      const int c = first + 8 * lane;
      uint2 codes{0, 0};
      if (c < of.d) codes = *reinterpret_cast<const uint2*>(bytes + c);
      __syncwarp();  // all lanes have read theirs
      const uint4 numbers = eight_codes<T>(codes, c < all.grid.sums.latents ? latent_scale : scale);
      if (c < all.memory.channels) *reinterpret_cast<uint4*>(row + c) = numbers;
    }
  }
}

// sums += the products of 16 queries and 8 keys over 32 channels: `left` and `right` are what this
// lane reads of both.
template <typename T>
__device__ void add_latent_products(float (&sums)[4], const T* left, const T* right) {
  std::uint32_t keys[4];
  std::uint32_t queries[4];
  load_matrices<false>(keys, right);
  load_matrices<false>(queries, left);
  multiply_fragments<T>(sums, queries, keys);
  load_matrices<false>(queries, left + 16);
  multiply_fragments<T>(sums, queries, keys + 2);
}

// The products of all queries with the keys of a step. Every second 32 channels are a summand: in a
// narrow tile another warp has it.
template <typename T>
__device__ void multiply_latent_keys(const LatentMemory& memory, const T* keys) {
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const bool narrow = memory.tile == kLatentQueries;
  const int first_row = narrow ? 0 : warp % 2 * kLatentQueries;
  const int first_key = warp / 2 * 8;
  const T* left =
      shared_array<T>(memory.queries()) + (first_row + lane % 16) * memory.pitch() + lane / 16 * 8;
  const T* right = keys + (first_key + lane % 8) * memory.pitch() + lane / 8 * 8;
  float even[4] = {};
  float odd[4] = {};
  for (int c = narrow ? warp % 2 * 32 : 0; c < memory.channels; c += 64) {
    add_latent_products(even, left + c, right + c);
    if (!narrow && c + 32 < memory.channels)
      add_latent_products(odd, left + c + 32, right + c + 32);
  }
  float* scores = shared_array<float>(memory.scores());
  const int to = narrow ? warp % 2 * kLatentQueries : first_row;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    scores[(to + lane / 4 + e / 2 * 8) * kLatentScorePitch + first_key + lane % 4 * 2 + e % 2] =
        even[e] + odd[e];
  }
}

// Of the queries of a warp: sums of weights of the lane's own keys. The largest scores are in
// shared memory, as registers are few.
using LatentWeightSums = float[kLatentRowsOfWarp];

// Makes the products of a step weights, and leaves the factors of what was summed before. A lane
// has key begin + lane, one of `count`.
template <typename T>
__device__ void take_latent_scores(const LatentMemory& memory, const ScoreRules& rules, int begin,
                                   int count, LatentWeightSums& sums) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const float* scores = shared_array<float>(memory.scores());
  const Bounds* bounds = shared_array<Bounds>(memory.bounds());
  T* weights = shared_array<T>(memory.weights());
  float* factors = shared_array<float>(memory.factors());
  float* ends = shared_array<float>(memory.ends());
#pragma unroll
  for (int i = 0; i < kLatentRowsOfWarp; ++i) {
    const int row = static_cast<int>(threadIdx.x / kWarp) + kWarps * i;
    if (row >= memory.tile) break;  // the whole warp
    float product = scores[row * kLatentScorePitch + lane];
    if (memory.tile == kLatentQueries)
      product += scores[(kLatentQueries + row) * kLatentScorePitch + lane];
    const Bounds seen = bounds[row];
    const int key = begin + lane;
    float unused = 0;
    const float score = lane < count && key >= seen.first && key <= seen.last
                            ? rules.score(product, &unused)
                            : kNothing;
    const float before = __shfl_sync(kAllLanes, lane == 0 ? ends[2 * row] : 0.0F, 0);
    float most = fmaxf(before, score);
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, distance));
    const float factor = most == kNothing ? 1.0F : exp2f((before - most) * kLogE2);
    const float weight = score == kNothing ? 0.0F : exp2f((score - most) * kLogE2);
    sums[i] = sums[i] * factor + weight;
    weights[row * kLatentWeightPitch + lane] = narrow<T>(weight);
    if (lane == 0) {
      factors[row] = factor;
      ends[2 * row] = most;
    }
  }
}

// Of each 16 queries of a tile, and each of the warp's blocks of 16 channels.
using LatentParts = float[kLatentTile / kLatentQueries][kLatentBlocksOfWarp][2][4];

// parts = parts factors + weights times the latents of a step
template <typename T>
__device__ void add_latents(LatentParts& parts, const LatentMemory& memory, std::int64_t latents,
                            const T* keys) {
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const float* factors = shared_array<float>(memory.factors());
#pragma unroll
  for (int m = 0; m < kLatentTile / kLatentQueries; ++m) {
    if (m * kLatentQueries >= memory.tile) break;
    const float of_rows[2] = {factors[m * kLatentQueries + lane / 4],
                              factors[m * kLatentQueries + lane / 4 + 8]};
#pragma unroll
    for (int i = 0; i < kLatentBlocksOfWarp; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) parts[m][i][j][e] *= of_rows[e / 2];
      }
    }
  }
#pragma unroll
  for (int s = 0; s < kLatentStep / 16; ++s) {
    std::uint32_t weights[kLatentTile / kLatentQueries][4];
#pragma unroll
    for (int m = 0; m < kLatentTile / kLatentQueries; ++m) {
      if (m * kLatentQueries >= memory.tile) break;
      load_matrices<false>(weights[m], shared_array<T>(memory.weights()) +
                                           (m * kLatentQueries + lane % 16) * kLatentWeightPitch +
                                           16 * s + lane / 16 * 8);
    }
#pragma unroll
    for (int i = 0; i < kLatentBlocksOfWarp; ++i) {
      const int c = 16 * (warp + kWarps * i);
      if (c >= latents) break;
      std::uint32_t right[4];
      load_matrices<true>(right, keys + (16 * s + lane % 16) * memory.pitch() + c + lane / 16 * 8);
#pragma unroll
      for (int m = 0; m < kLatentTile / kLatentQueries; ++m) {
        if (m * kLatentQueries >= memory.tile) break;
        multiply_fragments<T>(parts[m][i][0], weights[m], right);
        multiply_fragments<T>(parts[m][i][1], weights[m], right + 2);
      }
    }
  }
}

// use(row, c, low, high) for the neighboring channels c and c + 1 of all queries of a tile that the
// lane has; the last channel may be alone.
template <typename Use>
__device__ void for_each_pair(const LatentParts& parts, int count, std::int64_t latents,
                              const Use& use) {
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
#pragma unroll
  for (int m = 0; m < kLatentTile / kLatentQueries; ++m) {
#pragma unroll
    for (int own = 0; own < 2; ++own) {
      const int row = m * kLatentQueries + lane / 4 + 8 * own;
      if (row >= count) continue;
#pragma unroll
      for (int i = 0; i < kLatentBlocksOfWarp; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int c = 16 * (warp + kWarps * i) + 8 * j + lane % 4 * 2;
          if (c < latents) use(row, c, parts[m][i][j][2 * own], parts[m][i][j][2 * own + 1]);
        }
      }
    }
  }
}

// Writes the sums of a block: the result, or what is merged later.
template <typename T, bool kCoded>
__device__ void write_latent_parts(const LatentParts& parts, const StagedGrid<T, kCoded>& all,
                                   const LatentShare& share) {
  const LatentSums& sums = all.grid.sums;
  const float* ends = shared_array<float>(all.memory.ends());
  if (share.whole) {
    T* out = all.grid.of.out + share.first_query(all.grid) * sums.latents;
    const bool pairs =
        sums.latents % 2 == 0 && reinterpret_cast<std::uintptr_t>(out) % sizeof(std::uint32_t) == 0;
    for_each_pair(parts, share.count, sums.latents, [&](int row, int c, float low, float high) {
      const float sum = ends[2 * row + 1];
      const float factor = sum == 0 ? 0.0F : 1.0F / sum;
      T* to = out + row * sums.latents + c;
      if (pairs) {
        *reinterpret_cast<std::uint32_t*>(to) = rounded_pair<T>(factor * low, factor * high);
        return;
      }
      to[0] = narrow<T>(factor * low);
      if (c + 1 < sums.latents) to[1] = narrow<T>(factor * high);
    });
  } else {
    float* values = sums.values + sums.place(share.sample, share.slot, 0) * sums.latents;
    for_each_pair(parts, share.count, sums.latents, [&](int row, int c, float low, float high) {
      float* to = values + row * sums.latents + c;
      to[0] = low;
      if (c + 1 < sums.latents) to[1] = high;
    });
  }
  const int row = static_cast<int>(threadIdx.x);
  if (row < share.count) write_end(all.grid, share, row, ends[2 * row], ends[2 * row + 1]);
}

template <typename T, bool kCoded>
__global__ void __launch_bounds__(kThreads, kBlocks)
    attend_to_latent_chunk(StagedGrid<T, kCoded> all) {
  wait_for_previous();
  let_next_start();
  const LatentMemory& memory = all.memory;
  const CachedGrid<T, kCoded>& of = all.grid.of;
  const LatentShare own = LatentShare::of_block(all.grid);
  if (own.count <= 0) return;  // the whole block
  LatentShare& share = *shared_array<LatentShare>(memory.share());
  if (threadIdx.x == 0) share = own;
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const auto keys_of = [&](int stage) {
    return shared_array<T>(memory.keys() + stage * memory.step());
  };
  for (int i = warp; i < memory.tile; i += kWarps) {
    const bool given = i < own.count;
    copy_latent_row(shared_array<T>(memory.queries()) + i * memory.pitch(),
                    of.q + (own.first_query(all.grid) + (given ? i : 0)) * of.d, given, of.d,
                    memory.channels, of.vectors);
  }
  for (int i = static_cast<int>(threadIdx.x); i < memory.tile; i += kThreads) {
    shared_array<Bounds>(memory.bounds())[i] = own.bounds(all.grid, i);
    shared_array<float>(memory.ends())[2 * i] = kNothing;
  }
  int begin = own.begin;
  bool more = own.find_step(of.sight, kLatentStep, begin);
  if (more) copy_latent_step(keys_of(0), all, StepOfKeys::of(own, begin));
  __syncthreads();  // `share` is there
  LatentParts parts = {};
  LatentWeightSums sums = {};
#pragma unroll 1
  for (int stage = 0; more; stage = memory.stages - 1 - stage) {
    wait_for_copies();
    if constexpr (kCoded) expand_latent_step(keys_of(stage), all, StepOfKeys::of(share, begin));
    __syncthreads();  // the step is there, and the other stage and the scores have been read
    const int now = begin;
    begin += kLatentStep;
    more = share.find_step(of.sight, kLatentStep, begin);
    if (more && memory.stages == 2)
      copy_latent_step(keys_of(1 - stage), all, StepOfKeys::of(share, begin));
    multiply_latent_keys(memory, keys_of(stage));
    __syncthreads();
    take_latent_scores<T>(memory, of.rules, now, StepOfKeys::of(share, now).count, sums);
    __syncthreads();
    add_latents(parts, memory, all.grid.sums.latents, keys_of(stage));
    if (memory.stages == 2) continue;
    __syncthreads();  // the step has been read
    if (more) copy_latent_step(keys_of(0), all, StepOfKeys::of(share, begin));
  }
  float* ends = shared_array<float>(memory.ends());
#pragma unroll
  for (int i = 0; i < kLatentRowsOfWarp; ++i) {
    const int row = warp + kWarps * i;
    float sum = sums[i];
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    if (lane != 0 || row >= memory.tile) continue;
    ends[2 * row + 1] = sum;
  }
  __syncthreads();
  write_latent_parts(parts, all, share);
}

template <typename T, bool kCoded>
void launch_latent_chunks(const CachedAttention& call, const LatentSums& sums, const dim3& blocks,
                          cudaStream_t stream) {
  StagedGrid<T, kCoded> all{.grid = latent_grid<T, kCoded>(call, sums),
                            .memory = {.tile = sums.tile,
                                       .channels = static_cast<int>((call.q.dim(2) + 31) / 32 * 32),
                                       .stages = sums.tile == kLatentNarrowTile ? 2 : 1}};
  if (all.memory.bytes() > kMostLatentBytes) all.memory.stages = 1;
  launch("launch of attention to latents", attend_to_latent_chunk<T, kCoded>,
         {.blocks = blocks,
          .shared_bytes = static_cast<std::size_t>(all.memory.bytes()),
          .early = true},
         all, stream);
}

}  // namespace

void launch_latents_on_tensor_cores(const CachedAttention& call, const LatentSums& sums,
                                    const dim3& blocks, cudaStream_t stream) {
  with_floating(call.q.dtype(), [&]<typename T>(std::type_identity<T>) {
    if constexpr (sizeof(T) == 2) {
      if (call.key_scales.defined())
        return launch_latent_chunks<T, true>(call, sums, blocks, stream);
      launch_latent_chunks<T, false>(call, sums, blocks, stream);
    }
  });
}

}  // namespace piton::cuda
