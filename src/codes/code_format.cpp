#include "codes/code_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "codes/integer_codes.h"
#include "codes/k_blocks.h"

namespace piton {
namespace {

constexpr std::int64_t kGgmlBlock = 32;  // of q8_0 and q4_0
constexpr std::int64_t kInt4Group = 128;
constexpr std::int64_t kNf4Group = 64;
constexpr std::int64_t kNoGroup = 0;

struct Named {
  std::string_view name;
  CodeFormat format;
};

constexpr std::array<Named, 10> kFormats{{
    {"int8", {Quantization::kInt8, 0}},
    {"int4", {Quantization::kInt4, kInt4Group}},
    {"q8_0", {Quantization::kQ80, kGgmlBlock}},
    {"q4_0", {Quantization::kQ40, kGgmlBlock}},
    {"nf4", {Quantization::kNf4, kNf4Group}},
    {"q4_k", {Quantization::kQ4K, 32}},
    {"q5_k", {Quantization::kQ5K, 32}},
    {"q6_k", {Quantization::kQ6K, 16}},
    {"int8-zeros", {Quantization::kInt8Zeros, kNoGroup}},
    {"int4-zeros", {Quantization::kInt4Zeros, kNoGroup}},
}};

// std::round() for magnitudes below 2^31.
std::int32_t nearest_from_zero(float x) {
  const auto whole = static_cast<std::int32_t>(x);
  const float rest = x - static_cast<float>(whole);
  return whole + (rest >= 0.5F ? 1 : 0) - (rest <= -0.5F ? 1 : 0);
}

// 1 / d, and 0 where that is no number: then every value is 0.
float inverse(float d) {
  const float inverse = d == 0 ? 0 : 1 / d;
  return std::isfinite(inverse) ? inverse : 0;
}

// The largest magnitude, NaN if a value is not finite.
float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  float sum = 0;  // NaN where a value is not finite
  for (const float value : values) {
    largest = std::max(largest, std::abs(value));
    sum += value * 0;
  }
  return largest + sum;
}

void encode_k_row(const CodeFormat& format, std::span<const float> values, const CodedRow& to,
                  const std::string& where) {
  PITON_ASSERT(std::ssize(values) % kKBlockValues == 0, "{}: {} columns", where, values.size());
  for (std::int64_t index = 0; index < std::ssize(values) / kKBlockValues; ++index) {
    const KBlock block = quantize_k(
        format.rule,
        values.subspan(static_cast<std::size_t>(index * kKBlockValues)).first<kKBlockValues>());
    if (!is_finite(block)) refuse_scale(where);
    put_k_block(format.rule, block, to, index);
  }
}

void pack(std::span<const std::byte> nibbles, std::byte* codes) {
  for (std::size_t i = 0; i < nibbles.size(); i += 2) {
    const std::byte high = i + 1 < nibbles.size() ? nibbles[i + 1] : std::byte{0};
    codes[i / 2] = nibbles[i] | high << 4;
  }
}

// The rule of formats whose codes are whole numbers.
IntegerFormat integers_of(const CodeFormat& format) {
  const bool half = is_half_byte(code_kind(format));
  return {.bits = half ? 4 : 8,
          .group = format.group,
          .symmetric = !has_zeros(format),
          .scale = scale_dtype(format)};
}

float encode_integer_group(const CodeFormat& format, std::span<const float> group, float* zero,
                           std::byte* codes) {
  const IntegerFormat integers = integers_of(format);
  const IntegerScale scale = integer_scale(integers, ValueRange::of(group));
  if (!std::isfinite(scale.scale)) return scale.scale;
  integer_codes(integers, scale, group, codes);
  if (zero != nullptr) *zero = scale.zero;
  return scale.scale;
}

// The nearest value of the table: where a step of 1/128 begins, and at most one change within it.
class Nf4Places {
 public:
  Nf4Places() {
    for (int step = 0; step <= 256; ++step) {
      const float x = static_cast<float>(step) / 128 - 1;
      int code = 0;
      while (code < 15 && x > middle(code)) ++code;
      first_[static_cast<std::size_t>(step)] = static_cast<std::uint8_t>(code);
    }
    for (int code = 0; code < 16; ++code)
      ends_[static_cast<std::size_t>(code)] = code < 15 ? middle(code) : 2.0F;
  }
  std::byte of(float x) const {  // -1 .. 1
    const auto step = static_cast<std::size_t>(static_cast<std::int32_t>((x + 1) * 128));
    const std::uint8_t code = first_[std::min<std::size_t>(step, 256)];
    return static_cast<std::byte>(code + (x > ends_[code] ? 1 : 0));
  }

 private:
  static float middle(int code) { return (kNf4Values[code] + kNf4Values[code + 1]) / 2; }
  std::array<std::uint8_t, 257> first_{};
  std::array<float, 16> ends_{};
};

float encode_nf4(std::span<const float> group, std::byte* nibbles) {
  static const Nf4Places kPlaces;
  const float scale = largest_magnitude(group);
  if (!std::isfinite(scale)) return scale;
  const float factor = inverse(scale);
  for (std::size_t i = 0; i < group.size(); ++i)
    nibbles[i] = kPlaces.of(std::clamp(group[i] * factor, -1.0F, 1.0F));
  return scale;
}

void put_scale(DType type, float scale, std::byte* scales, std::int64_t index,
               const std::string& where) {
  const Float16 half = to_float16(scale);
  if (!std::isfinite(type == DType::kF16 ? to_float(half) : scale)) refuse_scale(where);
  if (type == DType::kF16) {
    std::memcpy(scales + index * 2, &half.bits, 2);
  } else {
    std::memcpy(scales + index * 4, &scale, 4);
  }
}

}  // namespace

std::string_view name(Quantization rule) {
  for (const Named& one : kFormats) {
    if (one.format.rule == rule) return one.name;
  }
  return "";
}

bool is_k_format(const CodeFormat& format) {
  return format.rule == Quantization::kQ4K || format.rule == Quantization::kQ5K ||
         format.rule == Quantization::kQ6K;
}

bool is_ggml_format(const CodeFormat& format) {
  return format.rule == Quantization::kQ80 || format.rule == Quantization::kQ40 ||
         is_k_format(format);
}

CodeKind code_kind(const CodeFormat& format) {
  switch (format.rule) {
    case Quantization::kNf4:
      return CodeKind::kNf4;
    case Quantization::kInt4:
    case Quantization::kQ40:
    case Quantization::kQ4K:
    case Quantization::kInt4Zeros:
      return CodeKind::kInt4;
    case Quantization::kInt8:
    case Quantization::kQ80:
    case Quantization::kQ5K:
    case Quantization::kQ6K:
    case Quantization::kInt8Zeros:
      return CodeKind::kInt8;
  }
  return CodeKind::kInt8;
}

DType scale_dtype(const CodeFormat& format) {
  const Quantization rule = format.rule;
  if (is_k_format(format)) return DType::kU8;
  return rule == Quantization::kInt4 || rule == Quantization::kQ80 || rule == Quantization::kQ40
             ? DType::kF16
             : DType::kF32;
}

bool has_zeros(const CodeFormat& format) {
  const Quantization rule = format.rule;
  return rule == Quantization::kInt4 || rule == Quantization::kInt8Zeros ||
         rule == Quantization::kInt4Zeros;
}

bool has_minima(const CodeFormat& format) {
  return format.rule == Quantization::kQ4K || format.rule == Quantization::kQ5K;
}

std::int64_t block_columns(const CodeFormat& format) {
  return is_k_format(format) ? kKBlockValues : format.group;
}

std::optional<CodeFormat> code_format(std::string_view flag, const std::string& word) {
  if (word.empty()) return std::nullopt;
  for (const Named& one : kFormats) {
    if (one.name == word && one.format.rule < Quantization::kInt8Zeros) return one.format;
  }
  throw Error(Fault::kUsage,
              "{}: got \"{}\", wanted int8, int4, q8_0, q4_0, nf4, q4_k, q5_k or q6_k", flag, word);
}

WeightCodes allocate_codes(const CodeFormat& format, std::int64_t out, std::int64_t in,
                           Arena& arena) {
  const std::int64_t group = format.group > 0 ? format.group : std::max<std::int64_t>(in, 1);
  const std::int64_t groups = (in + group - 1) / group;
  const auto allocate = [&](DType dtype, const Shape& shape) {
    const Tensor tensor = arena.allocate(dtype, shape, MemoryKind::kParameters);
    if (tensor.place().kind == DeviceKind::kHost)
      std::memset(tensor.raw(), 0, static_cast<std::size_t>(tensor.bytes()));
    return tensor;
  };
  const CodeKind kind = code_kind(format);
  return {.kind = kind,
          .group = group,
          .codes = allocate(DType::kU8, {out, code_bytes(kind, in)}),
          .scales = allocate(scale_dtype(format), {out, groups}),
          .zeros = has_zeros(format) ? allocate(DType::kF32, {out, groups}) : Tensor(),
          .minima = has_minima(format) ? allocate(DType::kU8, {out, groups}) : Tensor(),
          .block_scales =
              is_k_format(format) ? allocate(DType::kF32, {out, in / kScaleBlock}) : Tensor(),
          .block_minima =
              has_minima(format) ? allocate(DType::kF32, {out, in / kScaleBlock}) : Tensor()};
}

CodedRow row_of(const WeightCodes& codes, std::int64_t row) {
  const std::int64_t groups = codes.scales.dim(1);
  const auto bytes_of = [&](const Tensor& tensor) {
    if (!tensor.defined()) return static_cast<std::byte*>(nullptr);
    return tensor.raw() + row * tensor.dim(1) * size_bytes(tensor.dtype());
  };
  return {.codes = bytes_of(codes.codes),
          .scales = bytes_of(codes.scales),
          .zeros = codes.zeros.defined() ? codes.zeros.data<float>() + row * groups : nullptr,
          .minima = bytes_of(codes.minima),
          .block_scales = reinterpret_cast<float*>(bytes_of(codes.block_scales)),
          .block_minima = reinterpret_cast<float*>(bytes_of(codes.block_minima))};
}

void encode_row(const CodeFormat& format, std::span<const float> values, const CodedRow& to,
                const std::string& where) {
  if (is_k_format(format)) return encode_k_row(format, values, to, where);
  const std::size_t group = format.group > 0 ? static_cast<std::size_t>(format.group)
                                             : std::max<std::size_t>(values.size(), 1);
  const bool half_bytes = is_half_byte(code_kind(format));
  std::vector<std::byte> nibbles(half_bytes ? group : 0);
  for (std::size_t begin = 0, index = 0; begin < values.size(); begin += group, ++index) {
    const std::span<const float> part =
        values.subspan(begin, std::min(group, values.size() - begin));
    std::byte* codes = half_bytes ? nibbles.data() : to.codes + begin;
    float scale = 0;
    switch (format.rule) {
      case Quantization::kInt8:
      case Quantization::kInt4:
      case Quantization::kInt4Zeros:
      case Quantization::kInt8Zeros:
        scale = encode_integer_group(format, part, to.zeros != nullptr ? to.zeros + index : nullptr,
                                     codes);
        break;
      case Quantization::kQ80:
        scale = q80_scale(part);
        q80_codes(part, scale, codes);
        break;
      case Quantization::kQ40:
        scale = q40_scale(part);
        q40_codes(part, scale, codes);
        break;
      case Quantization::kNf4:
        scale = encode_nf4(part, codes);
        break;
      case Quantization::kQ4K:
      case Quantization::kQ5K:
      case Quantization::kQ6K:
        break;  // encode_k_row
    }
    put_scale(scale_dtype(format), scale, to.scales, static_cast<std::int64_t>(index), where);
    if (half_bytes) pack(std::span(nibbles).first(part.size()), to.codes + begin / 2);
  }
}

float q80_scale(std::span<const float> block) { return largest_magnitude(block) / 127; }

float q40_scale(std::span<const float> block) {
  float largest = 0;  // with its sign; the first of several
  float sum = 0;
  for (const float value : block) {
    if (std::abs(value) > std::abs(largest)) largest = value;
    sum += value * 0;
  }
  return sum == 0 ? largest / -8 : sum;
}

void q80_codes(std::span<const float> block, float scale, std::byte* codes) {
  if (!std::isfinite(scale)) return;
  const float factor = inverse(scale);
  for (std::size_t i = 0; i < block.size(); ++i) {
    codes[i] =
        static_cast<std::byte>(static_cast<std::int8_t>(nearest_from_zero(block[i] * factor)));
  }
}

// Product and sum are rounded once, as where ggml is compiled for processors that have fused
// multiply-add, and as in its Python package.
void q40_codes(std::span<const float> block, float scale, std::byte* codes) {
  if (!std::isfinite(scale)) return;
  const float factor = inverse(scale);
  for (std::size_t i = 0; i < block.size(); ++i) {
    codes[i] =
        static_cast<std::byte>(std::min(15, static_cast<int>(std::fma(block[i], factor, 8.5F))));
  }
}

}  // namespace piton
