// Scaled dot-product attention. One call covers training, cache, packed documents, windows, ALiBi
// slopes and dropout.
//
//   P[i, j] = softmax over visible j of (scale * q_i . k_j + slope * (j - i)); i, j: positions
//   out_i   = sum over j of dropout(P)[i, j] * v_j
//
// With a bias of distances, bias[head, j - i + bias_origin] is added to a score (T5: Raffel et al.
// 2020, arXiv:1910.10683, section 2.1).
//
// With a soft cap c, c tanh(scale * q_i . k_j / c) replaces scale * q_i . k_j.
//
// Head A of q reads head A / (a / g) of k and v (grouped queries). Sums and softmax run in fp32
// (fp64 for fp64). A query that sees no key gives 0 and lse = -infinity. Query i is at position
// query_begin + i (or query_positions), key j at position j (or key_positions). Key positions
// ascend in each sample. With slopes or dropout they must be consecutive: p, p + 1, p + 2, ...;
// with dropout p must be a multiple of 4.
//
// The back end chooses the tiling of the score matrix, except for `block_rows`:
//   0  tiles with a running softmax; tiles without a visible pair are skipped
//   B  the triangle form: rows in blocks of B, and block i against the whole rectangle of keys
//      0 .. (i + 1) B - 1 with one ordinary softmax: n (n + 1) / 2 of n^2 blocks of B x B for n B
//      rows. The remaining rows use all keys. It needs a causal mask and queries from position 0
//      on. A back end without it may use tiles: both compute the same function.
#pragma once

#include <optional>

#include "kernels/call.h"

namespace piton {

struct AttentionMask {
  bool causal = true;                         // j <= i, by positions
  std::optional<std::int64_t> window_before;  // j >= i - window_before; none: no bound
  std::optional<std::int64_t> window_after;   // j <= i + window_after; may be negative
  std::int64_t query_begin = 0;               // position of query 0: > 0 with a cache
  Tensor query_positions;                     // int32 [b, sq] or empty: instead of query_begin + i
  Tensor key_positions;                       // int32 [b, sk] or empty: instead of j
  // int32 [b, sq] or empty, with `causal`: a query also sees later keys, up to this position (the
  // prefix of a text, whose tokens see one another). Values before the query's position change
  // nothing. Not together with block_rows.
  Tensor query_reach;
  Tensor key_lengths;     // int32 [b] or empty: keys key_lengths[b], key_lengths[b] + 1, ... are
                          // invisible
  Tensor query_segments;  // int32 [b, sq] and [b, sk], or both empty: only keys of the
  Tensor key_segments;    //   query's own segment are visible (packed documents)
  Tensor slopes;          // fp32 [a] or empty: ALiBi
  // fp32 (fp64) [a, w] or empty: a bias of each distance. Every visible pair has a column in it.
  // Not together with positions on the device or block_rows.
  Tensor bias;
  std::int64_t bias_origin = 0;  // column of distance 0
};

struct AttentionForward {
  static constexpr std::string_view kName = "attention forward";
  Tensor out;  // [b, sq, a, d]  written; dtype of q
  Tensor
      lse;   // [b, a, sq]     written, fp32 (fp64): log of the sum of exponentials, before dropout
  Tensor q;  // [b, sq, a, d]  q, k, v: last dim contiguous, the others any strides
  Tensor k;  // [b, sk, g, d]
  Tensor v;  // [b, sk, g, d]
  AttentionMask mask;
  double scale = 0;  // usually 1 / sqrt(d)
  Dropout dropout;   // rows.first_row 0; the position is the query's, the column the key's
  std::int64_t head_begin =
      0;  // global index of head 0: dropout draws use the head index of the unsplit model
  std::int64_t block_rows = 0;
  double soft_cap = 0;  // 0: none

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("out", self.out, Access::kWrite);
    v("lse", self.lse, Access::kWrite);
    v("q", self.q, Access::kRead);
    v("k", self.k, Access::kRead);
    v("v", self.v, Access::kRead);
    v("query_positions", self.mask.query_positions, Access::kRead);
    v("key_positions", self.mask.key_positions, Access::kRead);
    v("query_reach", self.mask.query_reach, Access::kRead);
    v("key_lengths", self.mask.key_lengths, Access::kRead);
    v("query_segments", self.mask.query_segments, Access::kRead);
    v("key_segments", self.mask.key_segments, Access::kRead);
    v("slopes", self.mask.slopes, Access::kRead);
    v("bias", self.mask.bias, Access::kRead);
    v("consumed_samples", self.dropout.rows.consumed_samples, Access::kRead);
  }
  void check() const;
  double flops() const;  // a causal square counts half of its pairs
};

// Recomputes P from q, k and lse. `lse` and `out` may belong to more keys than k and v (context
// parallelism: they are of the whole row, while k and v are a part of it).
struct AttentionBackward {
  static constexpr std::string_view kName = "attention backward";
  Tensor dq;     // [b, sq, a, d]  written
  Tensor dk;     // [b, sk, g, d]  written
  Tensor dv;     // [b, sk, g, d]  written
  Tensor dbias;  // [b, a, w]     written, type of the bias; or empty. The gradient of the bias is
                 // its sum over b
  Tensor dout;   // [b, sq, a, d]
  Tensor out;    // [b, sq, a, d]
  Tensor lse;    // [b, a, sq]
  Tensor q;
  Tensor k;
  Tensor v;
  AttentionMask mask;
  double scale = 0;
  Dropout dropout;
  std::int64_t head_begin = 0;
  std::int64_t block_rows = 0;
  double soft_cap = 0;  // 0: none

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dq", self.dq, Access::kWrite);
    v("dk", self.dk, Access::kWrite);
    v("dv", self.dv, Access::kWrite);
    v("dbias", self.dbias, Access::kWrite);
    v("dout", self.dout, Access::kRead);
    v("out", self.out, Access::kRead);
    v("lse", self.lse, Access::kRead);
    v("q", self.q, Access::kRead);
    v("k", self.k, Access::kRead);
    v("v", self.v, Access::kRead);
    v("query_positions", self.mask.query_positions, Access::kRead);
    v("key_positions", self.mask.key_positions, Access::kRead);
    v("query_reach", self.mask.query_reach, Access::kRead);
    v("key_lengths", self.mask.key_lengths, Access::kRead);
    v("query_segments", self.mask.query_segments, Access::kRead);
    v("key_segments", self.mask.key_segments, Access::kRead);
    v("slopes", self.mask.slopes, Access::kRead);
    v("bias", self.mask.bias, Access::kRead);
    v("consumed_samples", self.dropout.rows.consumed_samples, Access::kRead);
  }
  void check() const;
  double flops() const;  // four products; recomputing P is not counted
};

}  // namespace piton
