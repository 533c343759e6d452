// Attention to a cache of few queries, as in decoding: the keys of a text are divided into chunks,
// which are computed by different blocks and merged in order by the last of these blocks. Internal
// to this folder.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cached_attention.h"
#include "kernels/cuda/context.h"

namespace piton::cuda {

inline constexpr std::int64_t kFewQueries = 16;

// Whether attend_in_chunks() takes the call: 16-bit queries, heads of at most 128 channels, and no
// text can have more than kFewQueries rows.
bool has_few_queries(const CachedAttention& call);

// Enqueues the call. A row has the same bits next to any other rows, but not those of an
// AttentionForward.
void attend_in_chunks(const CachedAttention& call, const CallContext& context);

}  // namespace piton::cuda
