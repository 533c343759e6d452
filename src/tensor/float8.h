// 8-bit floating numbers (Micikevicius et al. 2022, arXiv:2209.05433) as values in fp32, and scales
// that bring numbers into their range. There are no tensors of these types.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace piton {

// E4M3: 4 bits of exponent and 3 of fraction, -448 .. 448, no infinities (torch.float8_e4m3fn).
// E5M2: 5 and 2 bits, -57344 .. 57344 (torch.float8_e5m2).
enum class Float8Format : std::uint8_t { kE4M3, kE5M2 };

inline float largest_float8(Float8Format format) {
  return format == Float8Format::kE4M3 ? 448.0F : 57344.0F;
}

// The nearest number of the format, ties to even; beyond the largest one, that with the sign of x.
// NaN and infinities become NaN: numbers beyond the range come from rounding a scale, infinities
// from a loss that diverges.
inline float rounded_to_float8(float x, Float8Format format) {
  const float size = std::fabs(x);
  if (!(size <= std::numeric_limits<float>::max())) return std::numeric_limits<float>::quiet_NaN();
  const bool e4m3 = format == Float8Format::kE4M3;
  // Numbers from 2^e up to 2^(e+1) are multiples of 2^(e - fraction bits), and so are all below the
  // smallest normal one. `shift` is 2^23 times that, so adding it rounds to a multiple.
  constexpr std::uint32_t kExponent = 0x7F800000U;
  const std::uint32_t smallest = std::bit_cast<std::uint32_t>(e4m3 ? 0x1p-6F : 0x1p-14F);
  std::uint32_t exponent = std::bit_cast<std::uint32_t>(size) & kExponent;
  if (exponent < smallest) exponent = smallest;
  const std::uint32_t largest = std::bit_cast<std::uint32_t>(0x1p100F);
  if (exponent > largest) exponent = largest;  // far beyond the range
  const auto shift = std::bit_cast<float>(exponent + ((e4m3 ? 20U : 21U) << 23));
  const float rounded = (size + shift) - shift;
  const float limit = largest_float8(format);
  return std::copysign(rounded < limit ? rounded : limit, x);
}

// What numbers are multiplied with before they are rounded, so that the largest of them, of size
// `largest_size`, becomes the largest number of the format: the quotient of the two in fp32, at
// most the largest finite number, 1 if there is nothing but zeros; or the largest power of two that
// is no larger.
inline float float8_scale(float largest_size, Float8Format format, bool power_of_two) {
  if (!(largest_size > 0)) return 1;
  const float quotient = largest_float8(format) / largest_size;
  const float scale =
      quotient <= std::numeric_limits<float>::max() ? quotient : std::numeric_limits<float>::max();
  if (!power_of_two) return scale;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) & 0x7F800000U);
}

}  // namespace piton
