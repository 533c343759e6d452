// Attention over queries, keys and values as a tape op (kernels/attention.h), and the access to a
// cache of the keys and values of earlier tokens. Projections, head norms and rotary embeddings of
// q, k and v are separate ops, which run before.
#pragma once

#include <optional>

#include "ops/tape.h"

namespace piton {

// Positions of queries and keys within their samples, on the device. Empty positions mean 0, 1, 2,
// ...; empty lengths mean all keys; empty segments mean one document.
struct AttentionPlaces {
  Tensor query_positions;  // int32 [b, sq]
  Tensor key_positions;    // int32 [b, sk], ascending in each sample
  Tensor key_lengths;      // int32 [b]: number of valid keys of each sample
  Tensor query_segments;   // int32 [b, sq]: a query sees only keys with its segment (document)
  Tensor key_segments;     // int32 [b, sk]
};

// Which keys a query sees, and how (kernels/attention.h).
struct AttentionSettings {
  double scale = 0;
  bool causal = true;
  std::optional<std::int64_t> window_before;
  std::optional<std::int64_t> window_after;
  Tensor slopes;  // fp32 [a/t]: ALiBi slopes of this rank's heads, or empty
  Dropout dropout;
  std::int64_t head_begin = 0;  // index of this rank's first head among all heads
  std::int64_t block_rows = 0;
  double soft_cap = 0;
  // With a tape: the result is not kept, but computed again in backward (ops/recompute.h).
  bool recompute = false;
};

// Queries, keys and values. The last dim is contiguous; the others may have any stride.
struct AttentionRows {
  Value q;  // [b, sq, a/t, d]
  Value k;  // [b, sk, g/t, d]
  Value v;  // [b, sk, g/t, d]
};

// -> [b*sq, a/t * d]
Value attend(Context& context, const AttentionRows& parts, const AttentionPlaces& places,
             const AttentionSettings& settings);

// The rows of a cache that one pass reads and writes, the same for every layer. They are read from
// the device, so that samples may have different lengths and a captured pass can be replayed.
struct CacheRows {
  Tensor begins;             // int32 [b]: rows that each sample had before this pass
  Tensor lengths;            // int32 [b]: rows including those of this pass
  Tensor positions;          // int32 [b, s]: positions of this pass's tokens
  std::int64_t longest = 0;  // at least the largest of `lengths`: rows beyond it are not read
};

// One layer of a cache.
struct CacheView {
  Tensor keys;    // [b, capacity, g/t, d]
  Tensor values;  // [b, capacity, g/t, d]
  CacheRows rows;
};

// Appends this pass's k and v, [b, s, g/t, d], to the cache, and returns all of its keys and
// values, [b, longest, g/t, d]. Asserts that there is no tape.
struct CachedRows {
  Value keys;
  Value values;
};
CachedRows append_to_cache(Context& context, const CacheView& cache, const Value& k,
                           const Value& v);

}  // namespace piton
