#include "codes/integer_codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace piton {
namespace {

struct CodeLimits {
  std::int32_t least, most;
};

CodeLimits limits_of(const IntegerFormat& format) {
  if (format.bits == 4) return {0, 15};
  return {format.symmetric ? -127 : -128, 127};
}

// To nearest even, for magnitudes below 2^22.
std::int32_t nearest_even(float x) {
  constexpr float kMove = 12582912.0F;  // 1.5 * 2^23
  return static_cast<std::int32_t>((x + kMove) - kMove);
}

float rounded_to(DType type, float x) {
  if (type == DType::kF16) return to_float(to_float16(x));
  if (type == DType::kBF16) return to_float(to_bfloat16(x));
  return x;
}

// 1 / s, and 0 where that is no number: then every value is 0.
float units_of(float scale) {
  const float inverse = 1 / scale;
  return std::isfinite(inverse) ? inverse : 0;
}

std::size_t group_of(std::int64_t group, std::size_t columns) {
  return group > 0 ? static_cast<std::size_t>(group) : std::max<std::size_t>(columns, 1);
}

void put_part(const IntegerFormat& format, const IntegerScale& scale, std::span<const float> part,
              const CodedRow& to, std::size_t begin) {
  if (format.bits == 8) return integer_codes(format, scale, part, to.codes + begin);
  std::vector<std::byte> nibbles(part.size() + 1);
  integer_codes(format, scale, part, nibbles.data());
  for (std::size_t i = 0; i < part.size(); i += 2)
    to.codes[(begin + i) / 2] = nibbles[i] | nibbles[i + 1] << 4;
}

}  // namespace

CodeFormat held_format(const IntegerFormat& format) {
  const Quantization rule = format.bits == 4   ? Quantization::kInt4Zeros
                            : format.symmetric ? Quantization::kInt8
                                               : Quantization::kInt8Zeros;
  return {rule, format.group};
}

ValueRange ValueRange::of(std::span<const float> values) {
  ValueRange range;
  float sum = 0;  // NaN where a value is not finite
  for (const float value : values) {
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
    sum += value * 0;
  }
  range.high += sum;
  return range;
}

void ValueRange::add(const ValueRange& other) {
  low = std::min(low, other.low);
  high = std::isnan(high) || std::isnan(other.high) ? NAN : std::max(high, other.high);
}

IntegerScale integer_scale(const IntegerFormat& format, const ValueRange& range) {
  const auto& [low, high] = range;
  const bool half = format.bits == 4;
  const float exact =
      format.symmetric ? (std::isnan(high) ? high : std::max(-low, high)) / (half ? 7.5F : 127.0F)
                       : (high - low) / (half ? 15.0F : 255.0F);
  const float scale = rounded_to(format.scale, exact);
  if (!std::isfinite(scale)) return {scale, 0};
  const auto [least, most] = limits_of(format);
  const float middle = static_cast<float>(half ? 8 : 0);
  if (format.symmetric || scale == 0) return {scale == 0 ? 1 : scale, middle};
  const std::int32_t zero = std::clamp(nearest_even(-low * units_of(scale)) + least, least, most);
  return {scale, static_cast<float>(zero)};
}

std::int32_t integer_code(const IntegerFormat& format, const IntegerScale& scale, float units) {
  const auto [least, most] = limits_of(format);
  constexpr float kFar = 1024;  // beyond every code, and small enough for nearest_even()
  return std::clamp(
      nearest_even(std::clamp(units, -kFar, kFar)) + static_cast<std::int32_t>(scale.zero), least,
      most);
}

void integer_codes(const IntegerFormat& format, const IntegerScale& scale,
                   std::span<const float> values, std::byte* codes) {
  const auto [least, most] = limits_of(format);
  const float factor = units_of(scale.scale);
  const auto zero = static_cast<std::int32_t>(scale.zero);
  for (std::size_t i = 0; i < values.size(); ++i) {
    codes[i] =
        static_cast<std::byte>(std::clamp(nearest_even(values[i] * factor) + zero, least, most));
  }
}

void encode_integers(const IntegerFormat& format, std::span<const float> values, const CodedRow& to,
                     const std::string& where) {
  const std::size_t group = group_of(format.group, values.size());
  const CodeFormat held = held_format(format);
  for (std::size_t begin = 0, index = 0; begin < values.size(); begin += group, ++index) {
    const std::span<const float> part =
        values.subspan(begin, std::min(group, values.size() - begin));
    const IntegerScale scale = integer_scale(format, ValueRange::of(part));
    if (!std::isfinite(scale.scale)) refuse_scale(where);
    put_part(format, scale, part, to, begin);
    std::memcpy(to.scales + index * 4, &scale.scale, 4);
    if (has_zeros(held)) to.zeros[index] = scale.zero;
  }
}

void encode_integers(const IntegerFormat& format, const IntegerScale& given,
                     std::span<const float> values, const CodedRow& to) {
  PITON_ASSERT(format.group == 0, "each group has a scale");
  put_part(format, given, values, to, 0);
  std::memcpy(to.scales, &given.scale, 4);
  if (has_zeros(held_format(format))) *to.zeros = given.zero;
}

void integer_values(const CodeFormat& held, const CodedRow& row, std::span<float> values) {
  const std::size_t group = group_of(held.group, values.size());
  const bool half = is_half_byte(code_kind(held));
  for (std::size_t begin = 0, index = 0; begin < values.size(); begin += group, ++index) {
    float scale = 0;
    std::memcpy(&scale, row.scales + index * 4, 4);
    const float zero = has_zeros(held) ? row.zeros[index] : 0;
    for (std::size_t i = begin; i < std::min(begin + group, values.size()); ++i) {
      const auto byte = std::to_integer<std::uint8_t>(row.codes[half ? i / 2 : i]);
      const int code = half ? (i % 2 == 0 ? byte & 15 : byte >> 4) : static_cast<std::int8_t>(byte);
      values[i] = scale * (static_cast<float>(code) - zero);
    }
  }
}

void refuse_scale(const std::string& where) {
  throw Error(Fault::kData,
              "{}: has values that are not finite, or too large for the scale of a group; it "
              "cannot be quantized: load it in 16 or 32 bits",
              where);
}

}  // namespace piton
