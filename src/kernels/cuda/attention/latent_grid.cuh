// How attention to latents is divided among blocks. Internal to this folder.
//
// The queries of a text are those of all its heads: query i is head i % a of row i / a. A block has
// a tile of them, which read a row of the cache together, and a chunk of the keys. A text of many
// queries has enough blocks without chunks. How keys are divided depends on the text alone, so its
// rows have the same bits next to any others.
#pragma once

#include "kernels/cuda/attention/chunk_sums.cuh"
#include "kernels/cuda/attention/latents.h"

namespace piton::cuda {

// What blocks leave of their chunks: sums over keys of exp(score - largest) times the latent,
// `largest`, and the sum of these weights.
struct LatentSums {
  float* values;       // [samples, slots, tile, c]
  float* softmax;      // [samples, slots, tile, 2]
  std::int64_t slots;  // of a text: of its tiles, all chunks
  std::int64_t latents;
  int tile;

  // Of query `i` of a tile.
  __device__ std::int64_t place(std::int64_t sample, std::int64_t slot, int i) const {
    return (sample * slots + slot) * tile + i;
  }
};

template <typename T, bool kCoded>
struct LatentGrid {
  CachedGrid<T, kCoded> of;  // its values are the latents
  LatentSums sums;
  std::int64_t heads;
};

template <typename T, bool kCoded>
LatentGrid<T, kCoded> latent_grid(const CachedAttention& call, const LatentSums& sums) {
  CachedAttention with_values = call;
  with_values.values = call.keys.slice(3, 0, sums.latents);
  return {.of = cached_grid<T, kCoded>(with_values), .sums = sums, .heads = call.q.dim(1)};
}

// The part of a block. Keys and queries of a text are counted in 32 bits, as its length is.
struct LatentShare {
  int sample;
  int slot;    // LatentSums
  bool whole;  // all keys of the text: the block writes the result
  int first;   // query of the text
  int count;   // of queries; at most 0: nothing to do
  int begin;   // keys
  int end;
  ShortPositions range;  // of the rows

  template <typename T, bool kCoded>
  __device__ static LatentShare of_block(const LatentGrid<T, kCoded>& grid) {
    const CachedGrid<T, kCoded>& of = grid.of;
    const int sample = static_cast<int>(blockIdx.y);
    const int slot = static_cast<int>(blockIdx.x);
    const int heads = static_cast<int>(grid.heads);
    const int rows = of.begins[sample + 1] - of.begins[sample];
    const int keys = of.lengths[sample];
    const LatentChunks chunks = latent_chunks(std::int64_t{rows} * heads, keys);
    const int chunk = slot % static_cast<int>(chunks.count);
    const std::int64_t first = std::int64_t{slot / static_cast<int>(chunks.count)} * grid.sums.tile;
    const std::int64_t left = std::int64_t{rows} * heads - first;
    const int count = static_cast<int>(left < 0                ? 0
                                       : left < grid.sums.tile ? left
                                                               : grid.sums.tile);
    const std::int64_t begin = chunk * chunks.keys;
    const int position = keys - rows;
    const std::int64_t first_row = first / heads;
    const std::int64_t last_row = (first + count - 1) / heads;
    return {
        .sample = sample,
        .slot = slot,
        .whole = chunks.count == 1,
        .first = static_cast<int>(first),
        .count = count,
        .begin = static_cast<int>(begin),
        .end = begin + chunks.keys < keys ? static_cast<int>(begin + chunks.keys) : keys,
        .range = ShortPositions({position + first_row, position + last_row, position + last_row})};
  }

  // The first query among all of the call [n, a].
  template <typename T, bool kCoded>
  __device__ std::int64_t first_query(const LatentGrid<T, kCoded>& grid) const {
    return grid.of.begins[sample] * grid.heads + first;
  }

  // What query i of the tile sees.
  template <typename T, bool kCoded>
  __device__ Bounds bounds(const LatentGrid<T, kCoded>& grid, int i) const {
    if (i >= count) return {0, -1};
    const CachedGrid<T, kCoded>& of = grid.of;
    const std::int64_t at =
        of.lengths[sample] - of.rows_of(sample) + (first + i) / static_cast<int>(grid.heads);
    return of.sight.bounds_of({at, at, at});
  }

  // Finds the first step of `keys` keys from `at` on that a query of the block may see.
  __device__ bool find_step(const KeySight& sight, int keys, int& at) const {
    for (; at < end; at += keys) {
      const int last = (at + keys < end ? at + keys : end) - 1;
      if (sight.meets(range.wide(), at, last)) return true;
    }
    return false;
  }
};

// Writes the softmax of query i of a block: of the whole text, or of a chunk.
template <typename T, bool kCoded>
__device__ void write_end(const LatentGrid<T, kCoded>& grid, const LatentShare& share, int i,
                          float largest, float sum) {
  if (share.whole) {
    if (grid.of.lse == nullptr) return;
    const std::int64_t query = share.first_query(grid) + i;
    grid.of.lse[query % grid.heads * grid.of.lse_rows + query / grid.heads] = lse_of(largest, sum);
    return;
  }
  float* to = grid.sums.softmax + 2 * grid.sums.place(share.sample, share.slot, i);
  to[0] = largest;
  to[1] = sum;
}

// Enqueues the blocks of all texts: of 16-bit types with tiles of kLatentTile or kLatentNarrowTile
// queries, of fp32 with narrow ones.
void launch_latents_on_tensor_cores(const CachedAttention& call, const LatentSums& sums,
                                    const dim3& blocks, cudaStream_t stream);
void launch_latents_on_units(const CachedAttention& call, const LatentSums& sums,
                             const dim3& blocks, cudaStream_t stream);

}  // namespace piton::cuda
