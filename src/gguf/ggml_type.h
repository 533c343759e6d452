// Types of tensors in GGUF files, as ggml numbers them, and the blocks that their values are in.
//
//   type    a block          value i of it
//   F32, F16, BF16  1 value
//   Q8_0    32: fp16 d, 32 int8 q                d q[i]
//   Q4_0    32: fp16 d, 16 bytes of two q each   d (q[i] - 8); byte j has value j in its low half
//   and
//                                                value 16 + j in its high half
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace piton {

enum class GgmlType : std::uint32_t { kF32 = 0, kF16 = 1, kQ40 = 2, kQ80 = 8, kBF16 = 30 };

// "F32", "Q8_0", ...: as GGUF's programs spell it.
std::string_view name(GgmlType type);
// Nothing for those that Piton does not have.
std::optional<GgmlType> ggml_type(std::uint32_t number);
// Of any number: "Q4_K", or "number 77".
std::string ggml_type_name(std::uint32_t number);

std::int64_t block_values(GgmlType type);
std::int64_t block_bytes(GgmlType type);
inline bool is_quantized(GgmlType type) { return block_values(type) > 1; }
// Of those that are not quantized.
DType plain_dtype(GgmlType type);
GgmlType ggml_type_of(DType dtype);  // fp32 for fp64

// dst = whole blocks of `values`, to the bit as ggml's quantize_row_q8_0_ref and q4_0_ref (of those
// that are not quantized: rounded to nearest even). Throws Error(kData), beginning with `where`,
// for a value that is not finite or too large for the scale of a block.
void encode_blocks(GgmlType type, std::span<const float> values, std::byte* dst,
                   const std::string& where);

// values = `count` of them, whole blocks.
void decode_blocks(GgmlType type, const std::byte* src, std::int64_t count, float* values);

}  // namespace piton
