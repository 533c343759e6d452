// How a matrix is quantized: the kinds of small integers (kernels/call.h), and how values become
// them.
//
//   name   codes  columns of a group  scale s, zero point z          code of a value w
//   int8   kInt8  a whole row         fp32 max|w| / 127              nearest to w / s
//   int4   kInt4  128                 fp16 (max - min) / 15,         nearest to w / s + z
//                                     z nearest to -min / s
//   q8_0   kInt8  32                  fp16 max|w| / 127              nearest to w / s, as ggml
//   q4_0   kInt4  32                  fp16 -(the w of max|w|) / 8    nearest to w / s + 8, as ggml
//   nf4    kNf4   64                  fp32 max|w|, itself quantized  nearest value to w / max|w|
//   q4_k   kInt4  32, in blocks of    6 bits, times fp16 of the      that of codes/k_blocks.h
//   q5_k   kInt8  256                 block; so the minimum
//   q6_k   kInt8  16, of 256          8 bits, times fp16 of the block
//   int8-zeros    any, or a whole     fp32 (max - min) / 255,        nearest to w / s + z
//          kInt8  row                 z an integer, -128 .. 127
//   int4-zeros    the same            fp32 (max - min) / 15,
//          kInt4                      z an integer, 0 .. 15
//
// The range of int4 and of formats with zeros includes 0. q8_0, q4_0, q4_k, q5_k and q6_k give the
// values of GGUF's blocks of these names. nf4 gives those of bitsandbytes with double quantization
// (Dettmers et al. 2023, arXiv:2305.14314): the scales of a canonical tensor are quantized to 8
// bits, in blocks of 256 of them (nested_scales.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernels/call.h"
#include "tensor/arena.h"

namespace piton {

enum class Quantization : std::uint8_t {
  kInt8,
  kInt4,
  kQ80,
  kQ40,
  kNf4,
  kQ4K,
  kQ5K,
  kQ6K,
  kInt8Zeros,
  kInt4Zeros
};

struct CodeFormat {
  Quantization rule = Quantization::kInt8;
  std::int64_t group = 0;  // columns; 0: the whole row

  bool operator==(const CodeFormat&) const = default;
};

std::string_view name(Quantization rule);
// q4_k, q5_k and q6_k.
bool is_k_format(const CodeFormat& format);
// Whose rows are stored in GGUF files.
bool is_ggml_format(const CodeFormat& format);
// Columns that are quantized together, and so cannot be split: 0 is the whole row.
std::int64_t block_columns(const CodeFormat& format);

// How codes and scales of the format are held.
CodeKind code_kind(const CodeFormat& format);
DType scale_dtype(const CodeFormat& format);
bool has_zeros(const CodeFormat& format);
bool has_minima(const CodeFormat& format);

// Nullopt for "". Throws Error(kUsage), beginning with `flag`, for another word than the names
// above, or one with zeros.
std::optional<CodeFormat> code_format(std::string_view flag, const std::string& word);

// Codes, scales and zero points of a matrix [out, in] that has no values yet: all scales are 0.
WeightCodes allocate_codes(const CodeFormat& format, std::int64_t out, std::int64_t in,
                           Arena& arena);

// A row of WeightCodes in host memory.
struct CodedRow {
  std::byte* codes = nullptr;
  std::byte* scales = nullptr;    // of the format's type
  float* zeros = nullptr;         // int4, int8-zeros, int4-zeros
  std::byte* minima = nullptr;    // q4_k, q5_k: signed bytes, as the scales
  float* block_scales = nullptr;  // q4_k, q5_k, q6_k
  float* block_minima = nullptr;  // q4_k, q5_k
};
CodedRow row_of(const WeightCodes& codes, std::int64_t row);

// Quantizes the values of a row; whole blocks of 256 in q4_k, q5_k and q6_k. nf4: the scales are
// not quantized yet. Throws Error(kData),
// beginning with `where`, for values that are not finite or too large for a scale of 16 bits.
void encode_row(const CodeFormat& format, std::span<const float> values, const CodedRow& to,
                const std::string& where);

// The rules of ggml for a block. The scale is NaN if a value is not finite. Codes of q4_0 are 0 to
// 15.
float q80_scale(std::span<const float> block);
float q40_scale(std::span<const float> block);
void q80_codes(std::span<const float> block, float scale, std::byte* codes);
void q40_codes(std::span<const float> block, float scale, std::byte* codes);

}  // namespace piton
