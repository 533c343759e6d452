// Blocks of GGUF files that Piton reads as values and does not write:
//
//   type   values bytes of a block, in this order                  value i
//   Q4_1   32     d, m, 16 of two q                                d q[i] + m
//   Q5_0   32     d, 4 of the fifth bits, 16 of the rest           d (q[i] - 16)
//   Q5_1   32     d, m, 4 of the fifth bits, 16 of the rest        d q[i] + m
//   IQ4_NL 32     d, 16 of two q                                   d table[q[i]]
//   MXFP4  32     e of d = 2^(e - 128), 16 of two q                d (twice E2M1 of q[i])
//   Q2_K   256    16 of scale and minimum, 64 of four q, d, dmin   d scale q[i] - dmin minimum
//   Q3_K   256    32 of third bits, 64 of four q, 12 of scales, d  d (scale - 32) (q[i] - 4)
//   IQ4_XS 256    d, 2 and 4 of scales, 128 of two q               d (scale - 32) table[q[i]]
//   TQ1_0  256    48 of five q, 4 of four q, d                     d (q[i] - 1)
//   TQ2_0  256    64 of four q, d                                  d (q[i] - 1)
//
// d, m and dmin are fp16. Products of d, a scale and a code are exact in fp32, so the only rounding
// is that of the sum, and values equal ggml's to the bit.
#pragma once

#include <cstddef>

#include "gguf/blocks/ggml_type.h"

namespace piton {

// Decodes a block of a quantized type without codes (has_codes).
void decode_value_block(GgmlType type, const std::byte* src, float* values);

}  // namespace piton
