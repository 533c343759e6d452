// Attention over queries, keys and values as a tape op (kernels/attention.h), and the cache of keys
// and values behind which it reads one token after another. What is done to q, k and v before
// (projections, head norms, rotary) are ops of their own.
#pragma once

#include <optional>

#include "ops/tape.h"

namespace piton {

// Where queries and keys are in their samples, on the device. What is empty counts from 0.
struct AttentionPlaces {
  Tensor query_positions;  // int32 [b, sq]
  Tensor key_positions;    // int32 [b, sk], ascending in each sample
  Tensor key_lengths;      // int32 [b]: keys from there on do not exist
  Tensor query_segments;   // int32 [b, sq] and [b, sk], or both empty: packed documents
  Tensor key_segments;
};

// Which keys a query sees, and how (kernels/attention.h).
struct AttentionSettings {
  double scale = 0;
  bool causal = true;
  std::optional<std::int64_t> window_before;
  std::optional<std::int64_t> window_after;
  Tensor slopes;  // fp32 [a/t] of this rank's heads, or empty
  Dropout dropout;
  std::int64_t head_begin = 0;  // global number of this rank's first head
  std::int64_t block_rows = 0;
};

// q [b, sq, a/t, d], k and v [b, sk, g/t, d], all but the last dim of any stride -> [b*sq, a/t *
// d].
Value attend(Context& context, const Value& q, const Value& k, const Value& v,
             const AttentionPlaces& places, const AttentionSettings& settings);

// Which rows of a cache one pass reads and writes, the same for every layer. On the device, so that
// samples may differ and a recorded pass can be repeated.
struct CacheRows {
  Tensor begins;             // int32 [b]: rows of each sample before this pass
  Tensor lengths;            // int32 [b]: with those of this pass
  Tensor positions;          // int32 [b, s]: of this pass's tokens
  std::int64_t longest = 0;  // no sample has more rows; a bound of what is looked at
};

// One layer of it.
struct CacheView {
  Tensor keys;  // [b, capacity, g/t, d]
  Tensor values;
  CacheRows rows;
};

// Appends this pass's keys and values [b, s, g/t, d] to the cache, and gives all that it then has:
// [b, longest, g/t, d]. Without a tape only.
struct CachedRows {
  Value keys;
  Value values;
};
CachedRows append_to_cache(Context& context, const CacheView& cache, const Value& k,
                           const Value& v);

}  // namespace piton
