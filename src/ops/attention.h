// Self-attention over a fused projection as a tape op: optional rotary, then kernels/attention.h.
#pragma once

#include "ops/tape.h"

namespace piton {

// The layout of one row of qkv: [q heads | k groups | v groups], each d wide, local to this rank.
struct AttentionSettings {
  std::int64_t heads = 0;       // a/t
  std::int64_t groups = 0;      // g/t
  std::int64_t head_size = 0;   // d
  std::int64_t head_begin = 0;  // global number of this rank's first head
  std::int64_t batch = 0;       // b; rows are [b, s]
  double scale = 0;
  AttentionMask mask;
  Dropout dropout;
  // Rotary tables [positions, d/2], or narrower where only the first channels of a head turn, and
  // each row's position; or empty tensors.
  Tensor cosine;
  Tensor sine;
  Tensor positions;  // int32 [n]
  Rotary::Convention convention = Rotary::Convention::kHalves;
  std::int64_t block_rows = 0;  // of self_attention: kernels/attention.h
};

// qkv [n, (a + 2g)/t * d] -> [n, a/t * d]. The op takes qkv's memory over: it rotates q and k in
// place.
Value self_attention(Context& context, const Value& qkv, const AttentionSettings& settings);

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

// Without a tape, behind a cache: appends this call's k and v and attends to all before.
Value cached_attention(Context& context, const Value& qkv, const AttentionSettings& settings,
                       const CacheView& cache);

}  // namespace piton
