// Names, sizes and the half precision conversions.
#include "tensor/dtype.h"

#include "base/error.h"

namespace piton {

std::int64_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  PITON_ASSERT(false, "dtype {}", static_cast<int>(dtype));
  return 0;
}

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "fp64";
    case DType::kF32:
      return "fp32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "fp16";
    case DType::kI64:
      return "int64";
    case DType::kI32:
      return "int32";
    case DType::kU8:
      return "uint8";
  }
  return "?";
}

// Layout of half precision: 1 sign, 5 exponent (bias 15), 10 mantissa bits.
float to_float(Float16 x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x8000U} << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = x.bits & 0x3FFU;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in fp32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

Float16 to_float16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return {static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU))};
  }
  // 65520 = 65504 + half a step: from here on, rounding to nearest even gives infinity.
  if (magnitude >= 0x477FF000U) return {static_cast<std::uint16_t>(sign | 0x7C00U)};
  if (magnitude < 0x38800000U) {
    // Below 2^-14 the result is a multiple of 2^-24. Adding 0.5 moves this bit to the last place of
    // fp32, and the addition rounds to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    const std::uint32_t steps = std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U;
    return {static_cast<std::uint16_t>(sign | steps)};
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return {static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112U << 10)))};
}

}  // namespace piton
