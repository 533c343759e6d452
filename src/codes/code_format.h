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
//
// The range of int4 includes 0. q8_0 and q4_0 give the values of GGUF's blocks of these names. nf4
// gives those of bitsandbytes with double quantization (Dettmers et al. 2023, arXiv:2305.14314):
// the scales of a canonical tensor are quantized to 8 bits, in blocks of 256 of them
// (nested_scales.h).
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

enum class Quantization : std::uint8_t { kInt8, kInt4, kQ80, kQ40, kNf4 };

struct CodeFormat {
  Quantization rule = Quantization::kInt8;
  std::int64_t group = 0;  // columns; 0: the whole row

  bool operator==(const CodeFormat&) const = default;
};

std::string_view name(Quantization rule);
// Nullopt for "". Throws Error(kUsage), beginning with `flag`, for another word than the names
// above.
std::optional<CodeFormat> code_format(std::string_view flag, const std::string& word);

// Codes, scales and zero points of a matrix [out, in] that has no values yet: all scales are 0.
WeightCodes allocate_codes(const CodeFormat& format, std::int64_t out, std::int64_t in,
                           Arena& arena);

// A row of WeightCodes in host memory.
struct CodedRow {
  std::byte* codes = nullptr;
  std::byte* scales = nullptr;  // of the format's type
  float* zeros = nullptr;       // int4
};
CodedRow row_of(const WeightCodes& codes, std::int64_t row);

// Quantizes the values of a row. nf4: the scales are not quantized yet. Throws Error(kData),
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
