// Element types and conversions between them.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace piton {

enum class DType : std::uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kU8 };

std::int64_t size_bytes(DType dtype);
std::string_view name(DType dtype);  // "fp32", "bf16", "int32", ... as in flags and messages

// bfloat16: the upper half of an fp32. Conversion rounds to nearest even and keeps NaN a NaN.
struct BFloat16 {
  std::uint16_t bits = 0;
};

inline float to_float(BFloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

inline BFloat16 to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  }
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}

// IEEE half precision. Conversion rounds to nearest even and overflows to infinity.
struct Float16 {
  std::uint16_t bits = 0;
};

float to_float(Float16 x);
Float16 to_float16(float x);

}  // namespace piton
