// The bytes of blocks q4_k, q5_k and q6_k (codes/k_blocks.h) in GGUF files:
//
//   Q4_K   144   d, dmin, 12 bytes of scales and minima, 128 of codes
//   Q5_K   176   d, dmin, 12 bytes of scales and minima, 32 of the fifth bits, 128 of the rest
//   Q6_K   210   128 bytes of the lower four bits, 64 of the upper two, 16 scales, d
//
// A byte of the lower four bits has two codes, 32 apart in Q4_K and Q5_K and 64 apart in Q6_K.
// Of the 12 bytes, 0 - 3 have the scales of groups 0 - 3 in their lower six bits, 4 - 7 the minima,
// 8 - 11 the lower four bits of the scales and minima of groups 4 - 7, whose upper two are the
// upper bits of the bytes before.
#pragma once

#include <cstddef>

#include "codes/k_blocks.h"

namespace piton {

void store_k_block(Quantization rule, const KBlock& block, std::byte* dst);
KBlock load_k_block(Quantization rule, const std::byte* src);

}  // namespace piton
