// Attention to a cache of keys and values in pages, and writing to such a cache.
//
// A cache has pages of kCachePage rows: [pages, kCachePage, g, d]. A sample has a table of pages:
// the key of position j is row j % kCachePage of page table[j / kCachePage]. Samples may share
// pages (Kwon et al. 2023, arXiv:2309.06180).
//
// A cache may hold integers (codes) instead of values: one byte each, two's complement, with a
// scale for each row of a head. The scale is max |x| / 127, a code is x / scale rounded to the
// nearest integer, ties to even, at most 127 in size; both in fp32. A row of zeros has scale 0 and
// codes 0, a row with a value that is not finite the scale NaN and codes 0. Attention reads scale *
// code, multiplied in fp32 and rounded to the type of the queries.
//
// A cache of LATENTS has one row for each token, in place of a key and a value of each head: the
// latent, c channels, and then the channels that all keys have in common (DeepSeek-AI 2024,
// arXiv:2405.04434, section 2.1.2; nn/latent_attention.h). The row is the key of all heads, and its
// first c channels are the value, so it is stored and read once: [pages, kCachePage, 1, d]. Both
// parts of a row of codes have a scale. Only where Kernels::attends_to_latents().
//
// A pass is a list of rows. Those of one sample are consecutive, and they are the last tokens of
// its text: so a part of one prompt and the next token of another text are one call.
#pragma once

#include <optional>

#include "kernels/attention.h"
#include "kernels/call.h"
#include "kernels/rotary.h"

namespace piton {

inline constexpr std::int64_t kCachePage = 64;

// Writes keys and values to a cache: row i to row slots[i] % kCachePage of page slots[i] /
// kCachePage. Slots are different. With queries, these and the keys are rotated (kernels/rotary.h):
// channels first_channel .. first_channel + c - 1 of each head, q in place and keys on their way to
// the cache, with the bits of a Rotary of q and one of k before. k itself stays as it is.
//
// To write latents, `values` and `keys` are views of the two parts of the rows, v the latents and k
// the other channels; their widths differ. Their scales are those of the parts.
struct CacheAppend {
  static constexpr std::string_view kName = "cache append";
  Tensor keys;        // [pages, kCachePage, g, d]  updated; u8 with scales, else of the type of k
  Tensor values;      // the same; of latents [pages, kCachePage, 1, c]
  Tensor k;           // [n, g, d]  rows and heads may be strided, as in v and q
  Tensor v;           // [n, g, d]; of latents [n, 1, c]
  Tensor slots;       // int32 [n]
  Tensor key_scales;  // fp32 [pages, kCachePage, g]  updated; rows of a head consecutive; or empty
  Tensor value_scales;  // the same
  Tensor q;             // [n, a, d] or empty: no rotation  changed in place
  Tensor positions;     // int32 [n]; this and the rest only with q
  Tensor cosine;        // [positions, c/2]  fp32 (fp64 for fp64)
  Tensor sine;          // [positions, c/2]
  Rotary::Convention convention = Rotary::Convention::kHalves;
  std::int64_t first_channel = 0;

  bool rotates() const { return q.defined(); }
  // Channels of a head that are rotated.
  std::int64_t rotated_channels() const { return rotates() ? 2 * cosine.dim(1) : 0; }

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("keys", self.keys, Access::kUpdate);
    v("values", self.values, Access::kUpdate);
    v("k", self.k, Access::kRead);
    v("v", self.v, Access::kRead);
    v("slots", self.slots, Access::kRead);
    v("key scales", self.key_scales, Access::kUpdate);
    v("value scales", self.value_scales, Access::kUpdate);
    v("q", self.q, Access::kUpdate);
    v("positions", self.positions, Access::kRead);
    v("cosine", self.cosine, Access::kRead);
    v("sine", self.sine, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// Causal attention as in kernels/attention.h, of rows of samples to the keys of their texts.
// Sample i has rows begins[i] .. begins[i + 1] - 1 (at least one), at the last positions of its
// text of lengths[i] tokens. The results have the bits of an AttentionForward over one sample with
// the same queries and keys; on a GPU, only if a sample may have more than 16 rows
// (kernels/cuda/attention/cached_chunks.h), and not of latents. Rows before begins[0] and from
// begins[b] on are neither read nor written.
struct CachedAttention {
  static constexpr std::string_view kName = "cached attention";
  Tensor out;      // [n, a, d]  written; dtype of q; of latents [n, a, c]
  Tensor lse;      // [a, n] or empty  written, as that of an AttentionForward
  Tensor q;        // [n, a, d]  last dim contiguous, the others any strides, as in keys, values
  Tensor keys;     // [pages, kCachePage, g, d]; u8 with scales
  Tensor values;   // the same; empty: keys are latents. Then q and out are contiguous
  Tensor begins;   // int32 [b + 1], ascending, at most n
  Tensor lengths;  // int32 [b]
  Tensor table;    // int32 [b, p]
  std::optional<std::int64_t> window_before;  // as in AttentionMask
  std::optional<std::int64_t> window_after;
  Tensor slopes;  // fp32 [a] or empty: ALiBi; not with latents
  Tensor bias;    // as in AttentionMask: of the distances to all keys of every text; not either
  std::int64_t bias_origin = 0;
  double scale = 0;
  double soft_cap = 0;  // 0: none
  // Of keys and values that are codes: fp32 [pages, kCachePage, g], as CacheAppend writes them; or
  // empty, both. Of latents, value_scales are those of the first c channels of a row.
  Tensor key_scales;
  Tensor value_scales;
  double pairs = 0;  // of a query and a key that it sees, without windows: only for flops()

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("out", self.out, Access::kWrite);
    v("lse", self.lse, Access::kWrite);
    v("q", self.q, Access::kRead);
    v("keys", self.keys, Access::kRead);
    v("values", self.values, Access::kRead);
    v("begins", self.begins, Access::kRead);
    v("lengths", self.lengths, Access::kRead);
    v("table", self.table, Access::kRead);
    v("slopes", self.slopes, Access::kRead);
    v("bias", self.bias, Access::kRead);
    v("key scales", self.key_scales, Access::kRead);
    v("value scales", self.value_scales, Access::kRead);
  }
  void check() const;
  double flops() const;
  bool of_latents() const { return !values.defined(); }
  // The mask of the last `rows` tokens of a text of `keys`, as of an AttentionForward over it.
  AttentionMask mask_of(std::int64_t rows, std::int64_t keys) const;
};

}  // namespace piton
