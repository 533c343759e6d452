// Attention to a cache of latents (kernels/cached_attention.h): one row of the cache is the key of
// all heads and, in its first channels, their value. The keys of a text of few rows are divided
// into chunks. Internal to this folder.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cached_attention.h"
#include "kernels/cuda/context.h"

namespace piton::cuda {

// Channels of a latent, and of a row, that the kernels have memory of a block for.
inline constexpr std::int64_t kMostLatents = 512;
inline constexpr std::int64_t kMostLatentRow = 640;

// How the queries and keys of a text are divided among blocks (latent_grid.cuh).
inline constexpr int kLatentTile = 32;         // most queries of a tile
inline constexpr int kLatentNarrowTile = 16;   // of a tile where a text has no more of them
inline constexpr int kLatentChunk = 128;       // the fewest keys of a chunk
inline constexpr int kLatentTextBlocks = 128;  // the most blocks of a text whose keys are divided

struct LatentChunks {
  std::int64_t keys;   // of a chunk
  std::int64_t count;  // of the text
};

// Of a text with so many queries and keys.
__host__ __device__ inline LatentChunks latent_chunks(std::int64_t queries, std::int64_t keys) {
  const std::int64_t tiles = (queries + kLatentTile - 1) / kLatentTile;
  const std::int64_t most = tiles < kLatentTextBlocks ? kLatentTextBlocks / tiles : 1;
  const std::int64_t together = most * kLatentChunk;
  const std::int64_t of_chunk = kLatentChunk * ((keys + together - 1) / together);
  return {of_chunk, (keys + of_chunk - 1) / of_chunk};
}

// Enqueues a call of latents. A row has the same bits next to any other texts. Throws Error(kUsage)
// for fp64, and for rows that are wider.
void attend_to_latents(const CachedAttention& call, const CallContext& context);

}  // namespace piton::cuda
