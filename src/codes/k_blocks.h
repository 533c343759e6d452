// Blocks of ggml's formats q4_k, q5_k and q6_k: 256 values, in groups of 32 or 16 of them, whose
// scales are themselves small integers.
//
//   format   groups       value i of group g, in fp32
//   q4_k     8 of 32      (d scale[g]) code[i] - dmin minimum[g]   code 0 .. 15; scale, minimum
//   q5_k     8 of 32      the same                                 code 0 .. 31; 0 .. 63
//   q6_k     16 of 16     (d scale[g]) (code[i] - 32)              code 0 .. 63; scale -128 .. 127
//
// d and dmin are fp16. The products of d and a scale, and of it and a code of q4_k and q5_k, are
// exact in fp32, so WeightCodes (kernels/call.h) hold a block to the bit.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "codes/code_format.h"
#include "tensor/dtype.h"

namespace piton {

inline constexpr std::int64_t kKBlockValues = 256;

struct KBlock {
  Float16 d;
  Float16 dmin;                          // not q6_k
  std::array<std::int8_t, 16> scales{};  // q4_k, q5_k: 8 of them
  std::array<std::uint8_t, 8> minima{};  // not q6_k
  std::array<std::uint8_t, kKBlockValues> codes{};
};

// With the bits of ggml's quantize_row_q4_K_ref, quantize_row_q5_K_ref and quantize_row_q6_K_ref,
// compiled without fused multiply-add. d is not finite if a value is not, or if it is too large.
KBlock quantize_k(Quantization rule, std::span<const float, kKBlockValues> values);
bool is_finite(const KBlock& block);  // d and dmin

// Values as ggml computes them, to the bit.
void k_values(Quantization rule, const KBlock& block, float* values);

// Puts codes, scales and minima of a block at the place of block `index` of a row.
void put_k_block(Quantization rule, const KBlock& block, const CodedRow& to, std::int64_t index);

}  // namespace piton
