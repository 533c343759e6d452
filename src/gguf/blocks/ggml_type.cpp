#include "gguf/blocks/ggml_type.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "checkpoint/values.h"
#include "codes/k_blocks.h"
#include "gguf/blocks/k_block_bytes.h"
#include "gguf/blocks/value_blocks.h"

namespace piton {
namespace {

constexpr std::int64_t kBlock = 32;
constexpr std::int64_t kHalf = kBlock / 2;

struct Facts {
  GgmlType type;
  std::string_view name;
  std::string_view word;   // of options; "": Piton reads the type as values and does not write it
  std::int64_t values;     // of a block
  std::int64_t bytes;      // of a block
  std::int64_t file_type;  // of llama.cpp: a file most of which is of this type; 0 without a word
};
constexpr std::array<Facts, 18> kTypes{{
    {GgmlType::kF32, "F32", "f32", 1, 4, 0},
    {GgmlType::kF16, "F16", "f16", 1, 2, 1},
    {GgmlType::kQ40, "Q4_0", "q4_0", kBlock, 2 + kHalf, 2},
    {GgmlType::kQ80, "Q8_0", "q8_0", kBlock, 2 + kBlock, 7},
    {GgmlType::kQ4K, "Q4_K", "q4_k", kKBlockValues, 144, 14},
    {GgmlType::kQ5K, "Q5_K", "q5_k", kKBlockValues, 176, 16},
    {GgmlType::kQ6K, "Q6_K", "q6_k", kKBlockValues, 210, 18},
    {GgmlType::kBF16, "BF16", "bf16", 1, 2, 32},
    {GgmlType::kQ41, "Q4_1", "", kBlock, 20, 0},
    {GgmlType::kQ50, "Q5_0", "", kBlock, 22, 0},
    {GgmlType::kQ51, "Q5_1", "", kBlock, 24, 0},
    {GgmlType::kIq4Nl, "IQ4_NL", "", kBlock, 18, 0},
    {GgmlType::kMxfp4, "MXFP4", "", kBlock, 17, 0},
    {GgmlType::kQ2K, "Q2_K", "", kKBlockValues, 84, 0},
    {GgmlType::kQ3K, "Q3_K", "", kKBlockValues, 110, 0},
    {GgmlType::kIq4Xs, "IQ4_XS", "", kKBlockValues, 136, 0},
    {GgmlType::kTq10, "TQ1_0", "", kKBlockValues, 54, 0},
    {GgmlType::kTq20, "TQ2_0", "", kKBlockValues, 66, 0},
}};

const Facts& facts(GgmlType type) {
  const auto found = std::ranges::find(kTypes, type, &Facts::type);
  PITON_ASSERT(found != kTypes.end(), "type {}", static_cast<std::uint32_t>(type));
  return *found;
}

// Those of published files that Piton does not read, for messages.
constexpr std::pair<std::uint32_t, std::string_view> kOtherTypes[] = {
    {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {21, "IQ3_S"}, {22, "IQ2_S"}, {24, "I8"},      {25, "I16"},    {26, "I32"},     {27, "I64"},
    {28, "F64"},   {29, "IQ1_M"}, {40, "NVFP4"},   {41, "Q1_0"},
};

void put_scale(float d, std::byte* dst) {
  const Float16 scale = to_float16(d);
  std::memcpy(dst, &scale.bits, 2);
}

float scale_of(const std::byte* src) {
  Float16 scale;
  std::memcpy(&scale.bits, src, 2);
  return to_float(scale);
}

[[noreturn]] void refuse_values(const std::string& where) {
  throw Error(Fault::kData,
              "{}: has values that are not finite, or too large for the fp16 scale of a block; it "
              "cannot be quantized: keep it as f32, f16 or bf16",
              where);
}

void check_scale(float d, const std::string& where) {
  if (!std::isfinite(d) || !std::isfinite(to_float(to_float16(d)))) refuse_values(where);
}

void encode_q80(const float* x, std::byte* dst, const std::string& where) {
  const std::span<const float> block(x, kBlock);
  const float d = q80_scale(block);
  check_scale(d, where);
  put_scale(d, dst);
  q80_codes(block, d, dst + 2);
}

void encode_q40(const float* x, std::byte* dst, const std::string& where) {
  const std::span<const float> block(x, kBlock);
  const float d = q40_scale(block);
  check_scale(d, where);
  put_scale(d, dst);
  std::array<std::byte, kBlock> codes{};
  q40_codes(block, d, codes.data());
  for (std::int64_t j = 0; j < kHalf; ++j) {
    dst[2 + j] = codes[static_cast<std::size_t>(j)] | codes[static_cast<std::size_t>(kHalf + j)]
                                                          << 4;
  }
}

void encode_k(GgmlType type, const float* x, std::byte* dst, const std::string& where) {
  const Quantization rule = code_format_of(type).rule;
  const KBlock block = quantize_k(rule, std::span<const float, kKBlockValues>(x, kKBlockValues));
  if (!is_finite(block)) refuse_values(where);
  store_k_block(rule, block, dst);
}

void decode_q80(const std::byte* src, float* x) {
  const float d = scale_of(src);
  for (std::int64_t i = 0; i < kBlock; ++i)
    x[i] = d * static_cast<float>(static_cast<std::int8_t>(src[2 + i]));
}

void decode_q40(const std::byte* src, float* x) {
  const float d = scale_of(src);
  for (std::int64_t j = 0; j < kHalf; ++j) {
    const int both = static_cast<int>(src[2 + j]);
    x[j] = d * static_cast<float>((both & 15) - 8);
    x[kHalf + j] = d * static_cast<float>((both >> 4) - 8);
  }
}

}  // namespace

std::string_view name(GgmlType type) { return facts(type).name; }

std::optional<GgmlType> ggml_type(std::uint32_t number) {
  for (const Facts& one : kTypes) {
    if (static_cast<std::uint32_t>(one.type) == number) return one.type;
  }
  return std::nullopt;
}

std::optional<GgmlType> ggml_type_of_word(const std::string& word) {
  for (const Facts& one : kTypes) {
    if (!word.empty() && one.word == word) return one.type;
  }
  return std::nullopt;
}

std::int64_t ggml_file_type(GgmlType type) {
  PITON_ASSERT(!facts(type).word.empty(), "{}", name(type));
  return facts(type).file_type;
}

std::string ggml_type_name(std::uint32_t number) {
  if (const std::optional<GgmlType> type = ggml_type(number)) return std::string(name(*type));
  for (const auto& [known, text] : kOtherTypes) {
    if (known == number) return std::string(text);
  }
  return fmt::format("number {}", number);
}

std::vector<std::string_view> ggml_type_names() {
  std::vector<std::string_view> names;
  for (const Facts& one : kTypes) names.push_back(one.name);
  return names;
}

std::int64_t block_values(GgmlType type) { return facts(type).values; }

std::int64_t block_bytes(GgmlType type) { return facts(type).bytes; }

bool has_codes(GgmlType type) { return is_quantized(type) && !facts(type).word.empty(); }

CodeFormat code_format_of(GgmlType type) {
  PITON_ASSERT(has_codes(type), "{}", name(type));
  return *code_format("type", std::string(facts(type).word));
}

DType plain_dtype(GgmlType type) {
  PITON_ASSERT(!is_quantized(type), "{} is quantized", name(type));
  return type == GgmlType::kF32 ? DType::kF32 : type == GgmlType::kF16 ? DType::kF16 : DType::kBF16;
}

GgmlType ggml_type_of(DType dtype) {
  if (dtype == DType::kF16) return GgmlType::kF16;
  if (dtype == DType::kBF16) return GgmlType::kBF16;
  PITON_ASSERT(dtype == DType::kF32 || dtype == DType::kF64, "{}", name(dtype));
  return GgmlType::kF32;
}

void encode_blocks(GgmlType type, std::span<const float> values, std::byte* dst,
                   const std::string& where) {
  const auto count = std::ssize(values);
  PITON_ASSERT(count % block_values(type) == 0, "{} values of {}", count, name(type));
  if (!is_quantized(type)) {
    convert_values(reinterpret_cast<const std::byte*>(values.data()), DType::kF32, dst,
                   plain_dtype(type), count);
    return;
  }
  const bool k = is_k_format(code_format_of(type));
  const auto encode = type == GgmlType::kQ80 ? encode_q80 : encode_q40;
  for (std::int64_t i = 0; i < count; i += block_values(type), dst += block_bytes(type))
    k ? encode_k(type, values.data() + i, dst, where) : encode(values.data() + i, dst, where);
}

void split_blocks(GgmlType type, const std::byte* src, std::int64_t count, const CodedRow& to) {
  const CodeFormat format = code_format_of(type);
  if (is_k_format(format)) {
    for (std::int64_t block = 0; block < count; ++block, src += block_bytes(type))
      put_k_block(format.rule, load_k_block(format.rule, src), to, block);
    return;
  }
  const std::int64_t bytes = block_bytes(type) - 2;
  for (std::int64_t block = 0; block < count; ++block, src += block_bytes(type)) {
    std::memcpy(to.scales + 2 * block, src, 2);
    std::byte* codes = to.codes + bytes * block;
    if (type == GgmlType::kQ80) {
      std::memcpy(codes, src + 2, static_cast<std::size_t>(bytes));
      continue;
    }
    // Bytes with neighbors, from bytes with values that are half a block apart.
    const auto nibble = [&](std::int64_t i) {
      return i < kHalf ? src[2 + i] & std::byte{15} : src[2 + i - kHalf] >> 4;
    };
    for (std::int64_t i = 0; i < kHalf; ++i) codes[i] = nibble(2 * i) | nibble(2 * i + 1) << 4;
  }
}

void decode_blocks(GgmlType type, const std::byte* src, std::int64_t count, float* values) {
  PITON_ASSERT(count % block_values(type) == 0, "{} values of {}", count, name(type));
  if (!is_quantized(type)) {
    convert_values(src, plain_dtype(type), reinterpret_cast<std::byte*>(values), DType::kF32,
                   count);
    return;
  }
  if (!has_codes(type)) {
    for (std::int64_t i = 0; i < count; i += block_values(type), src += block_bytes(type))
      decode_value_block(type, src, values + i);
    return;
  }
  const CodeFormat format = code_format_of(type);
  if (is_k_format(format)) {
    for (std::int64_t i = 0; i < count; i += kKBlockValues, src += block_bytes(type))
      k_values(format.rule, load_k_block(format.rule, src), values + i);
    return;
  }
  const auto decode = type == GgmlType::kQ80 ? decode_q80 : decode_q40;
  for (std::int64_t i = 0; i < count; i += kBlock, src += block_bytes(type))
    decode(src, values + i);
}

}  // namespace piton
