// Attention to latents on the fp32 units. A thread has the score of a query and a key of a step,
// and then every 256th channel of the sums of all queries.
#include "kernels/cuda/attention/latent_grid.cuh"
#include "kernels/cuda/vector.cuh"

namespace piton::cuda {
namespace {

constexpr int kUnitQueries = kLatentNarrowTile;                           // of a block
constexpr int kUnitStep = kThreads / kUnitQueries;                        // keys
constexpr int kUnitChannels = static_cast<int>(kMostLatents) / kThreads;  // of a thread
constexpr int kUnitTogether = 4;  // queries whose weights are loaded at once

// Shared memory of a block, in numbers. An odd length spreads the rows over the banks.
__host__ __device__ inline int unit_pitch(std::int64_t d) { return static_cast<int>(d) | 1; }
__host__ __device__ inline int unit_weights_at(std::int64_t d) {
  return (kUnitQueries + kUnitStep) * unit_pitch(d);
}
__host__ __device__ inline int unit_factors_at(std::int64_t d) {
  return unit_weights_at(d) + kUnitStep * kUnitQueries;
}
__host__ __device__ inline int unit_ends_at(std::int64_t d) {
  return unit_factors_at(d) + kUnitQueries;
}
__host__ __device__ inline int unit_numbers(std::int64_t d) {
  return unit_ends_at(d) + 2 * kUnitQueries;
}

// A row of the cache, of which codes have two scales.
template <typename Row>
__device__ float latent_channel(const Row& row, const Row& latent, std::int64_t c,
                                std::int64_t latents) {
  return c < latents ? latent[c] : row[c];
}

// Copies the rows of `count` keys from `begin` on; the others become 0.
template <bool kCoded>
__device__ void copy_unit_step(float* to, const LatentGrid<float, kCoded>& grid,
                               const std::int32_t* table, int begin, int count) {
  const CachedGrid<float, kCoded>& of = grid.of;
  const int pitch = unit_pitch(of.d);
  static_assert(kCachePage % kUnitStep == 0);  // a step is in one page
  const std::int64_t page = table[begin / static_cast<int>(kCachePage)];
  const int first = begin % static_cast<int>(kCachePage);
  for (int i = static_cast<int>(threadIdx.x / kWarp); i < kUnitStep; i += kWarps) {
    const int in_page = first + (i < count ? i : 0);
    const auto row = of.keys.row(page, in_page, 0);
    const auto latent = of.values.row(page, in_page, 0);
    for (int c = static_cast<int>(threadIdx.x % kWarp); c < of.d; c += kWarp)
      to[i * pitch + c] = i < count ? latent_channel(row, latent, c, grid.sums.latents) : 0.0F;
  }
}

// The softmax of a query, in the kUnitStep lanes that have its scores. `sum` is of the lane's key.
struct UnitSoftmax {
  float largest = kNothing;
  float sum = 0;

  // Makes a score a weight. Returns the factor of what was summed before.
  __device__ float take(float& score) {
    float most = fmaxf(largest, score);
    for (int distance = kUnitStep / 2; distance > 0; distance /= 2)
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, distance));
    const float factor = most == kNothing ? 1.0F : exp2f((largest - most) * kLogE2);
    score = score == kNothing ? 0.0F : exp2f((score - most) * kLogE2);
    sum = sum * factor + score;
    largest = most;
    return factor;
  }
  __device__ float whole_sum() const {
    float all = sum;
    for (int distance = kUnitStep / 2; distance > 0; distance /= 2)
      all += __shfl_xor_sync(kAllLanes, all, distance);
    return all;
  }
};

using UnitParts = float[kUnitChannels][kUnitQueries];

// parts = parts factors + weights times the latents of a step
__device__ inline void add_unit_latents(UnitParts& parts, std::int64_t d, std::int64_t latents) {
  static_assert(kUnitQueries % kUnitTogether == 0);
  const float* keys = shared_array<float>() + kUnitQueries * unit_pitch(d);
  const float* weights = shared_array<float>() + unit_weights_at(d);
  const float* factors = shared_array<float>() + unit_factors_at(d);
#pragma unroll
  for (int query = 0; query < kUnitQueries; ++query) {
    const float factor = factors[query];
#pragma unroll
    for (int i = 0; i < kUnitChannels; ++i) parts[i][query] *= factor;
  }
#pragma unroll 1
  for (int key = 0; key < kUnitStep; ++key) {
    float values[kUnitChannels];
#pragma unroll
    for (int i = 0; i < kUnitChannels; ++i) {
      const int c = static_cast<int>(threadIdx.x) + kThreads * i;
      values[i] = c < latents ? keys[key * unit_pitch(d) + c] : 0.0F;
    }
#pragma unroll
    for (int query = 0; query < kUnitQueries; query += kUnitTogether) {
      const auto some = load<kUnitTogether>(weights + key * kUnitQueries + query);
#pragma unroll
      for (int i = 0; i < kUnitChannels; ++i) {
#pragma unroll
        for (int j = 0; j < kUnitTogether; ++j)
          parts[i][query + j] = fmaf(some.at[j], values[i], parts[i][query + j]);
      }
    }
  }
}

template <bool kCoded>
__device__ void write_unit_parts(const UnitParts& parts, const LatentGrid<float, kCoded>& grid,
                                 const LatentShare& share) {
  const LatentSums& sums = grid.sums;
  const float* ends = shared_array<float>() + unit_ends_at(grid.of.d);
#pragma unroll
  for (int query = 0; query < kUnitQueries; ++query) {
    if (query >= share.count) break;
    const float sum = ends[2 * query + 1];
#pragma unroll
    for (int i = 0; i < kUnitChannels; ++i) {
      const int c = static_cast<int>(threadIdx.x) + kThreads * i;
      if (c >= sums.latents) continue;
      const float part = parts[i][query];
      if (share.whole) {
        grid.of.out[(share.first_query(grid) + query) * sums.latents + c] =
            sum == 0 ? 0.0F : part / sum;
      } else {
        sums.values[sums.place(share.sample, share.slot, query) * sums.latents + c] = part;
      }
    }
  }
  const int query = static_cast<int>(threadIdx.x);
  if (query < share.count) write_end(grid, share, query, ends[2 * query], ends[2 * query + 1]);
}

template <bool kCoded>
__global__ void __launch_bounds__(kThreads, kBlocks)
    attend_to_latent_chunk_on_units(LatentGrid<float, kCoded> grid) {
  wait_for_previous();
  let_next_start();
  const CachedGrid<float, kCoded>& of = grid.of;
  const LatentShare share = LatentShare::of_block(grid);
  if (share.count <= 0) return;  // the whole block
  const std::int32_t* table = of.table + share.sample * of.pages;
  const int pitch = unit_pitch(of.d);
  float* queries = shared_array<float>();
  float* keys = queries + kUnitQueries * pitch;
  float* weights = shared_array<float>() + unit_weights_at(of.d);
  float* factors = shared_array<float>() + unit_factors_at(of.d);
  for (int i = static_cast<int>(threadIdx.x / kWarp); i < kUnitQueries; i += kWarps) {
    const float* from = of.q + (share.first_query(grid) + (i < share.count ? i : 0)) * of.d;
    for (int c = static_cast<int>(threadIdx.x % kWarp); c < of.d; c += kWarp)
      queries[i * pitch + c] = from[c];
  }
  const int own_query = static_cast<int>(threadIdx.x) / kUnitStep;
  const int own_key = static_cast<int>(threadIdx.x) % kUnitStep;
  const Bounds seen = share.bounds(grid, own_query);
  UnitParts parts = {};
  UnitSoftmax softmax;
#pragma unroll 1
  for (int begin = share.begin; share.find_step(of.sight, kUnitStep, begin); begin += kUnitStep) {
    const int left = share.end - begin;
    const int count = left < kUnitStep ? left : kUnitStep;
    __syncthreads();  // the step before has been read
    copy_unit_step(keys, grid, table, begin, count);
    __syncthreads();
    float product = 0;
    for (int c = 0; c < of.d; ++c)
      product = fmaf(queries[own_query * pitch + c], keys[own_key * pitch + c], product);
    const int key = begin + own_key;
    float unused = 0;
    float score = own_key < count && key >= seen.first && key <= seen.last
                      ? of.rules.score(product, &unused)
                      : kNothing;
    const float factor = softmax.take(score);
    weights[own_key * kUnitQueries + own_query] = score;
    if (own_key == 0) factors[own_query] = factor;
    __syncthreads();
    add_unit_latents(parts, of.d, grid.sums.latents);
  }
  float* ends = shared_array<float>() + unit_ends_at(of.d);
  const float sum = softmax.whole_sum();
  if (own_key == 0) {
    ends[2 * own_query] = softmax.largest;
    ends[2 * own_query + 1] = sum;
  }
  __syncthreads();
  write_unit_parts(parts, grid, share);
}

}  // namespace

void launch_latents_on_units(const CachedAttention& call, const LatentSums& sums,
                             const dim3& blocks, cudaStream_t stream) {
  const LaunchShape shape{
      .blocks = blocks,
      .shared_bytes = sizeof(float) * static_cast<std::size_t>(unit_numbers(call.q.dim(2))),
      .early = true};
  const std::string_view name = "launch of attention to latents in fp32";
  if (call.key_scales.defined()) {
    launch(name, attend_to_latent_chunk_on_units<true>, shape, latent_grid<float, true>(call, sums),
           stream);
  } else {
    launch(name, attend_to_latent_chunk_on_units<false>, shape,
           latent_grid<float, false>(call, sums), stream);
  }
}

}  // namespace piton::cuda
