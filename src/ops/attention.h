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

// Without a tape, behind a cache: appends this call's k and v at `begin` and attends to all before.
// keys, values: [b, capacity, g/t, d].
struct CacheView {
  Tensor keys;
  Tensor values;
  std::int64_t begin = 0;  // rows already in the cache
};
Value cached_attention(Context& context, const Value& qkv, const AttentionSettings& settings,
                       const CacheView& cache);

}  // namespace piton
