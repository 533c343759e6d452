// Attention over queries, keys and values as a tape op (kernels/attention.h), and the access to a
// cache of the keys and values of earlier tokens. Projections, head norms and rotary embeddings of
// q, k and v are separate ops, which run before; only a cache can rotate what it gets.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/rotary.h"
#include "ops/tape.h"

namespace piton {

// Positions of queries and keys within their samples, on the device. Empty positions mean 0, 1, 2,
// ...; empty lengths mean all keys; empty segments mean one document.
struct AttentionPlaces {
  Tensor query_positions;  // int32 [b, sq]
  Tensor key_positions;    // int32 [b, sk], ascending in each sample
  Tensor query_reach;      // int32 [b, sq]: the last position that a query sees, if after its own
  Tensor key_lengths;      // int32 [b]: number of valid keys of each sample
  Tensor query_segments;   // int32 [b, sq]: a query sees only keys with its segment (document)
  Tensor key_segments;     // int32 [b, sk]
};

// A bias of distances (kernels/attention.h).
struct DistanceBias {
  Value values;             // fp32 (fp64) [a/t, w], or empty. Its gradient is [b, a/t, w]
  std::int64_t origin = 0;  // column of distance 0
};

// Sinks of this rank's heads (kernels/attention_sink.h).
struct AttentionSinks {
  bool given = false;
  Parameter* values = nullptr;  // [a/t]; null: all are 0
  std::int64_t begin = 0;       // of `values` that the first of the heads has
  // False: other heads of this rank are attended to in other calls, and their backward, which comes
  // later, completes the gradient.
  bool completes_gradient = true;
};

// Which keys a query sees, and how (kernels/attention.h).
struct AttentionSettings {
  double scale = 0;
  bool causal = true;
  std::optional<std::int64_t> window_before;
  std::optional<std::int64_t> window_after;
  Tensor slopes;  // fp32 [a/t]: ALiBi slopes of this rank's heads, or empty
  DistanceBias bias;
  Dropout dropout;
  std::int64_t head_begin = 0;  // index of this rank's first head among all heads
  std::int64_t block_rows = 0;
  double soft_cap = 0;
  AttentionSinks sinks;
  // With a tape: the result is not kept, but computed again in backward (ops/recompute.h).
  bool recompute = false;
};

// Queries, keys and values. The last dim is contiguous; the others may have any stride.
struct AttentionRows {
  Value q;  // [b, sq, a/t, d]
  Value k;  // [b, sk, g/t, d]
  Value v;  // [b, sk, g/t, d]
};

// -> [b*sq, a/t * d], or `out` [b, sq, a/t, d], if it is given: memory for the result, with any
// strides but the last.
Value attend(Context& context, const AttentionRows& parts, const AttentionPlaces& places,
             const AttentionSettings& settings, const Tensor& out = {});

// What attention without sinks gave, out [b, sq, a, d] and lse [b, a, sq], becomes that with them.
void add_sinks(const Context& context, const AttentionSinks& sinks, const Tensor& out,
               const Tensor& lse);
// Of one call of attention, or of each of several over parts of the rows: what it gave with sinks.
struct SinkRows {
  Tensor dout;  // [b, sq, a, d]
  Tensor out;
  Tensor lse;
};
// Adds to the gradient of the sinks, once for all parts.
void add_sink_gradient(const Context& context, const AttentionSinks& sinks,
                       const std::vector<SinkRows>& parts);

// The rows of one text in a pass of a cache.
struct CacheSample {
  std::int64_t begin = 0;  // its first row
  std::int64_t rows = 0;
  std::int64_t keys = 0;                     // tokens of the text, with these rows
  std::span<const std::int32_t> pages = {};  // those of its keys, in order

  // Of a row and a token that it sees, without windows.
  double pairs() const {
    return static_cast<double>(rows) *
           (static_cast<double>(keys) - 0.5 * static_cast<double>(rows - 1));
  }
};

// The rows of one pass of a cache, the same for every layer (kernels/cached_attention.h). They are
// read from the device, so that a captured pass can be replayed.
struct CacheRows {
  Tensor slots;      // int32 [n]: where the cache gets the keys and values of the rows
  Tensor begins;     // int32 [b + 1]
  Tensor lengths;    // int32 [b]
  Tensor table;      // int32 [b, p]
  double pairs = 0;  // CachedAttention::pairs
  // Of the texts in order, for what depends on how many rows they have. Valid in the pass.
  std::span<const CacheSample> samples = {};
};

// One layer of a cache.
struct CacheView {
  Tensor keys;    // [pages, kCachePage, g/t, d]; of latents [pages, kCachePage, 1, c + r]
  Tensor values;  // [pages, kCachePage, g/t, d]; of latents empty
  CacheRows rows;
  Tensor key_scales = {};  // fp32 [pages, kCachePage, g/t] of codes, or empty
  Tensor value_scales = {};

  bool of_latents() const { return keys.defined() && !values.defined(); }
};

// Writes keys k and values v [n, g/t, d] to the cache.
void write_to_cache(Context& context, const CacheView& cache, const Value& k, const Value& v);

// Rotates q and k by `turn`, unless its tables are empty, writes k and v to the cache, and attends
// from each row to the keys of its text in it, causally. Query, key and value rows are
// [n, heads, d]; q is rotated in place. Dropout, causal, block_rows and recompute of the settings
// are ignored. Returns [n, a/t * d]. Asserts that there is no tape.
Value attend_to_cache(Context& context, const CacheView& cache, const AttentionRows& rows,
                      const AttentionSettings& settings, const RotarySettings& turn = {});

// The same, to keys and values that are in the cache already. q [n, a/t, d].
Value attend_to_written(Context& context, const CacheView& cache, const Value& q,
                        const AttentionSettings& settings);

}  // namespace piton
