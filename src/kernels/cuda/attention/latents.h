// Attention to a cache of latents (kernels/cached_attention.h): one row of the cache is the key of
// all heads and, in its first channels, their value. The keys of a text of few rows are divided
// into chunks. Internal to this folder.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cached_attention.h"
#include "kernels/cuda/context.h"

namespace piton::cuda {

// Channels of a latent, and of a row, that the kernels have memory of a block for.
inline constexpr std::int64_t kMostLatents = 512;
inline constexpr std::int64_t kMostLatentRow = 640;

// Enqueues a call of latents. A row has the same bits next to any other texts. Throws Error(kUsage)
// for fp64, and for rows that are wider.
void attend_to_latents(const CachedAttention& call, const CallContext& context);

}  // namespace piton::cuda
