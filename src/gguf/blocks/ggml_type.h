// Types of tensors in GGUF files, with the numbers that ggml gives them. Values are stored in
// blocks:
//
//   type             values   bytes of a block            value i
//   F32, F16, BF16   1        the value
//   Q8_0             32       fp16 d, 32 int8 q           d q[i]
//   Q4_0             32       fp16 d, 16 bytes of two q   d (q[i] - 8)
//   Q4_K, Q5_K, Q6_K 256      gguf/blocks/k_block_bytes.h  codes/k_blocks.h
//   others           32, 256  gguf/blocks/value_blocks.h; read only
//
// In Q4_0, byte j has q[j] in its low half and q[16 + j] in its high half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codes/code_format.h"
#include "tensor/dtype.h"

namespace piton {

enum class GgmlType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ40 = 2,
  kQ41 = 3,
  kQ50 = 6,
  kQ51 = 7,
  kQ80 = 8,
  kQ2K = 10,
  kQ3K = 11,
  kQ4K = 12,
  kQ5K = 13,
  kQ6K = 14,
  kIq4Nl = 20,
  kIq4Xs = 23,
  kBF16 = 30,
  kTq10 = 34,
  kTq20 = 35,
  kMxfp4 = 39
};

// "F32", "Q8_0", ...: the name in llama.cpp.
std::string_view name(GgmlType type);
// Nullopt for a type that Piton does not support.
std::optional<GgmlType> ggml_type(std::uint32_t number);
// The name of any type, supported or not: "Q4_K"; "number 77" if ggml has no such type.
std::string ggml_type_name(std::uint32_t number);
// Names of all supported types.
std::vector<std::string_view> ggml_type_names();

std::int64_t block_values(GgmlType type);
std::int64_t block_bytes(GgmlType type);
inline bool is_quantized(GgmlType type) { return block_values(type) > 1; }
// Whether a quantized type is held as codes in memory, and written; others are read as values.
bool has_codes(GgmlType type);
// As which a type with codes is held in memory.
CodeFormat code_format_of(GgmlType type);
// The type of a word of options, which Piton writes: "q4_k"; nullopt for another.
std::optional<GgmlType> ggml_type_of_word(const std::string& word);
// llama.cpp's number for a file most of which is of this type, which Piton writes.
std::int64_t ggml_file_type(GgmlType type);
// For types that are not quantized.
DType plain_dtype(GgmlType type);
GgmlType ggml_type_of(DType dtype);  // fp32 for fp64

// Encodes `values`, which fill whole blocks, to `dst`: with the bits of ggml's
// quantize_row_q8_0_ref, quantize_row_q4_0_ref and so on; types that are not quantized are rounded
// to nearest even. Throws Error(kData), beginning with `where`, for a value that is not finite or
// too large for the scale of a block.
void encode_blocks(GgmlType type, std::span<const float> values, std::byte* dst,
                   const std::string& where);

// The codes, scales and minima of `count` blocks of a type with codes (codes/code_format.h), which
// keep their values.
void split_blocks(GgmlType type, const std::byte* src, std::int64_t count, const CodedRow& to);

// Decodes `count` values, which fill whole blocks.
void decode_blocks(GgmlType type, const std::byte* src, std::int64_t count, float* values);

}  // namespace piton
