// Attention to latents: what one block needs of another is merged by a second launch, in which a
// block has a query. One block of a text would take longer for all of them: sums are 512 channels
// wide.
#include "kernels/cuda/attention/latent_grid.cuh"
#include "kernels/cuda/attention/latents.h"
#include "kernels/cuda/bisection.cuh"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/vector.cuh"

namespace piton::cuda {
namespace {

constexpr int kLatentMergeChannels = 4;  // of a thread
constexpr int kLatentMergeThreads = static_cast<int>(kMostLatents) / kLatentMergeChannels;

template <typename T>
struct LatentMerge {
  T* out;      // [n, a, c]
  float* lse;  // [a, n], or nullptr
  const std::int32_t* begins;
  const std::int32_t* lengths;
  std::int64_t samples;
  std::int64_t rows;  // n
  std::int64_t heads;
  LatentSums sums;
};

// A block: a query. Chunks are added in order.
template <typename T>
__global__ void __launch_bounds__(kLatentMergeThreads) merge_latent_chunks(LatentMerge<T> grid) {
  wait_for_previous();
  let_next_start();
  const LatentSums& sums = grid.sums;
  const std::int64_t row = blockIdx.x / grid.heads;
  if (row < grid.begins[0] || row >= grid.begins[grid.samples]) return;
  const std::int64_t sample = text_of_row(grid.begins, grid.samples, row);
  const std::int64_t first = grid.begins[sample] * grid.heads;
  const std::int64_t queries = grid.begins[sample + 1] * grid.heads - first;
  const LatentChunks chunks = latent_chunks(queries, grid.lengths[sample]);
  if (chunks.count == 1) return;
  const std::int64_t query = std::int64_t{blockIdx.x} - first;
  const std::int64_t slot = query / sums.tile * chunks.count;
  const int in_tile = static_cast<int>(query % sums.tile);
  const auto softmax = [&](std::int64_t chunk) {
    return sums.softmax + 2 * sums.place(sample, slot + chunk, in_tile);
  };
  float largest = kNothing;
  for (std::int64_t chunk = threadIdx.x % kWarp; chunk < chunks.count; chunk += kWarp)
    largest = fmaxf(largest, softmax(chunk)[0]);
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
  const std::int64_t c = std::int64_t{threadIdx.x} * kLatentMergeChannels;
  const float* values = sums.values + sums.place(sample, slot, in_tile) * sums.latents + c;
  const std::int64_t next = sums.tile * sums.latents;  // from one chunk to the next
  const bool vectors = sums.latents % kLatentMergeChannels == 0;
  float merged[kLatentMergeChannels] = {};
  float sum = 0;
#pragma unroll 4
  for (std::int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    Numbers<float, kLatentMergeChannels> part{};
    if (vectors) {
      if (c < sums.latents) part = load<kLatentMergeChannels>(values + chunk * next);
    } else {
      for (int i = 0; i < kLatentMergeChannels; ++i) {
        if (c + i < sums.latents) part.at[i] = values[chunk * next + i];
      }
    }
    const float* end = softmax(chunk);
    const float weight = chunk_weight(end[0], end[1], largest);
    sum = fmaf(weight, end[1], sum);
#pragma unroll
    for (int i = 0; i < kLatentMergeChannels; ++i) merged[i] = fmaf(weight, part.at[i], merged[i]);
  }
  T* out = grid.out + std::int64_t{blockIdx.x} * sums.latents + c;
#pragma unroll
  for (int i = 0; i < kLatentMergeChannels; ++i) {
    if (c + i < sums.latents) out[i] = narrow<T>(sum == 0 ? 0.0F : merged[i] / sum);
  }
  if (threadIdx.x == 0 && grid.lse != nullptr)
    grid.lse[blockIdx.x % grid.heads * grid.rows + row] = lse_of(largest, sum);
}

template <typename T>
void merge_latents(const CachedAttention& call, const LatentSums& sums, cudaStream_t stream) {
  launch("launch of attention to latents, merge", merge_latent_chunks<T>,
         {.blocks = {static_cast<unsigned>(call.q.dim(0) * call.q.dim(1)), 1, 1},
          .threads = kLatentMergeThreads,
          .early = true},
         LatentMerge<T>{.out = pointer<T>(call.out),
                        .lse = pointer<float>(call.lse),
                        .begins = pointer<const std::int32_t>(call.begins),
                        .lengths = pointer<const std::int32_t>(call.lengths),
                        .samples = call.lengths.elements(),
                        .rows = call.q.dim(0),
                        .heads = call.q.dim(1),
                        .sums = sums},
         stream);
}

void expect_room_for_latents(const CachedAttention& call) {
  if (call.q.dtype() != DType::kF64 && call.out.dim(2) <= kMostLatents &&
      call.q.dim(2) <= kMostLatentRow)
    return;
  throw Error(Fault::kUsage,
              "cuda: attention in {} to latents of {} channels in rows of {}: wanted fp32, bf16 or "
              "fp16 and at most {} in {}; use --kernels cpu",
              name(call.q.dtype()), call.out.dim(2), call.q.dim(2), kMostLatents, kMostLatentRow);
}

}  // namespace

void attend_to_latents(const CachedAttention& call, const CallContext& context) {
  expect_room_for_latents(call);
  const std::int64_t samples = call.lengths.elements();
  if (samples == 0) return;
  // The host does not know the rows and the lengths of the texts, so all of this is the most that
  // there may be.
  const std::int64_t queries = (call.q.dim(0) - samples + 1) * call.q.dim(1);
  const std::int64_t chunks = std::min<std::int64_t>(
      (call.table.dim(1) * kCachePage + kLatentChunk - 1) / kLatentChunk, kLatentTextBlocks);
  const bool narrow = size_bytes(call.q.dtype()) != 2 || queries <= kLatentNarrowTile;
  const int tile = narrow ? kLatentNarrowTile : kLatentTile;
  const std::int64_t tiles = (queries + tile - 1) / tile;
  LatentSums sums{.latents = call.out.dim(2), .tile = tile};
  Tensor memory;  // the values, then the softmax
  if (chunks > 1) {
    sums.slots = std::min<std::int64_t>((queries + kLatentTile - 1) / kLatentTile * chunks,
                                        kLatentTextBlocks);
    if (queries > tile) sums.slots *= kLatentTile / tile;
    const std::int64_t parts = samples * sums.slots * tile;
    memory = scratch(DType::kF32, {parts * (sums.latents + 2)}, context);
    sums.values = pointer<float>(memory);
    sums.softmax = sums.values + parts * sums.latents;
  }
  const dim3 blocks{static_cast<unsigned>(std::max(tiles, sums.slots)),
                    static_cast<unsigned>(samples), 1};
  if (size_bytes(call.q.dtype()) == 2) {
    launch_latents_on_tensor_cores(call, sums, blocks, context.stream);
  } else {
    launch_latents_on_units(call, sums, blocks, context.stream);
  }
  if (chunks == 1) return;
  with_floating(call.q.dtype(), [&]<typename T>(std::type_identity<T>) {
    if constexpr (!std::is_same_v<T, double>) merge_latents<T>(call, sums, context.stream);
  });
}

}  // namespace piton::cuda
