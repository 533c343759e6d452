#include "gguf/blocks/value_blocks.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::size_t kSmall = 32;   // values of a small block
constexpr std::size_t kLarge = 256;  // and of a large one

// ggml's kvalues_iq4nl.
constexpr std::array<float, 16> kNonlinear{-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of E2M1 (OCP Microscaling Formats 1.0).
constexpr std::array<float, 16> kTwiceE2m1{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

unsigned byte_of(const std::byte* src, std::size_t i) { return std::to_integer<unsigned>(src[i]); }

float half_at(const std::byte* src) {
  Float16 value;
  std::memcpy(&value.bits, src, 2);
  return to_float(value);
}

// Code i of 32 that two halves of 16 bytes hold.
unsigned nibble(const std::byte* src, std::size_t i) {
  return i < kSmall / 2 ? byte_of(src, i) & 15 : byte_of(src, i - kSmall / 2) >> 4;
}

// Code i of 128, each 32 of which are two bits higher in the same 32 bytes.
unsigned pair_of_bits(const std::byte* src, std::size_t i) {
  return byte_of(src, i / 128 * kSmall + i % kSmall) >> (i % 128 / kSmall * 2) & 3;
}

void decode_q41(const std::byte* src, float* values) {
  const float d = half_at(src);
  const float m = half_at(src + 2);
  for (std::size_t i = 0; i < kSmall; ++i)
    values[i] = d * static_cast<float>(nibble(src + 4, i)) + m;
}

unsigned five_bits(const std::byte* src, std::size_t i) {
  return nibble(src + 4, i) | (byte_of(src, i / 8) >> i % 8 & 1) << 4;
}

void decode_q50(const std::byte* src, float* values) {
  const float d = half_at(src);
  for (std::size_t i = 0; i < kSmall; ++i)
    values[i] = d * (static_cast<float>(five_bits(src + 2, i)) - 16);
}

void decode_q51(const std::byte* src, float* values) {
  const float d = half_at(src);
  const float m = half_at(src + 2);
  for (std::size_t i = 0; i < kSmall; ++i)
    values[i] = d * static_cast<float>(five_bits(src + 4, i)) + m;
}

void decode_iq4nl(const std::byte* src, float* values) {
  const float d = half_at(src);
  for (std::size_t i = 0; i < kSmall; ++i) values[i] = d * kNonlinear[nibble(src + 2, i)];
}

void decode_mxfp4(const std::byte* src, float* values) {
  // Half of 2^(e - 127), whose two smallest are subnormal.
  const std::uint32_t e = byte_of(src, 0);
  const auto d = std::bit_cast<float>(e < 2 ? 0x00200000U << e : (e - 1) << 23);
  for (std::size_t i = 0; i < kSmall; ++i) values[i] = d * kTwiceE2m1[nibble(src + 1, i)];
}

void decode_q2k(const std::byte* src, float* values) {
  const float d = half_at(src + 80);
  const float dmin = half_at(src + 82);
  for (std::size_t i = 0; i < kLarge; ++i) {
    const unsigned both = byte_of(src, i / 16);
    const float minimum = dmin * static_cast<float>(both >> 4);
    values[i] =
        d * static_cast<float>(both & 15) * static_cast<float>(pair_of_bits(src + 16, i)) - minimum;
  }
}

// Of 16 scales: the lower four bits of each, two in a byte, then the upper two, four in a byte.
float q3k_scale(const std::byte* src, std::size_t group) {
  const unsigned low = group < 8 ? byte_of(src, group) & 15 : byte_of(src, group - 8) >> 4;
  const unsigned high = byte_of(src, 8 + group % 4) >> (group / 4 * 2) & 3;
  return static_cast<float>(low | high << 4) - 32;
}

void decode_q3k(const std::byte* src, float* values) {
  const float d = half_at(src + 108);
  for (std::size_t i = 0; i < kLarge; ++i) {
    const unsigned third = byte_of(src, i % kSmall) >> (i / kSmall) & 1;
    const float code = static_cast<float>(pair_of_bits(src + 32, i) | third << 2) - 4;
    values[i] = d * q3k_scale(src + 96, i / 16) * code;
  }
}

void decode_iq4xs(const std::byte* src, float* values) {
  const float d = half_at(src);
  for (std::size_t group = 0; group < kLarge / kSmall; ++group) {
    const unsigned low = byte_of(src, 4 + group / 2) >> (group % 2 * 4) & 15;
    const unsigned high = byte_of(src, 2 + group / 4) >> (group % 4 * 2) & 3;
    const float scale = d * (static_cast<float>(low | high << 4) - 32);
    const std::byte* codes = src + 8 + group * kSmall / 2;
    for (std::size_t i = 0; i < kSmall; ++i)
      values[group * kSmall + i] = scale * kNonlinear[nibble(codes, i)];
  }
}

// Digit `place` of the fraction src[i] / 256 in base 3.
float third_of(const std::byte* src, std::size_t i, std::size_t place) {
  constexpr std::array<unsigned, 5> kPowers{1, 3, 9, 27, 81};
  const unsigned rest = byte_of(src, i) * kPowers[place] & 255;
  return static_cast<float>(rest * 3 >> 8) - 1;
}

void decode_tq10(const std::byte* src, float* values) {
  const float d = half_at(src + 52);
  for (std::size_t i = 0; i < 160; ++i) values[i] = d * third_of(src, i % 32, i / 32);
  for (std::size_t i = 0; i < 80; ++i) values[160 + i] = d * third_of(src + 32, i % 16, i / 16);
  for (std::size_t i = 0; i < 16; ++i) values[240 + i] = d * third_of(src + 48, i % 4, i / 4);
}

void decode_tq20(const std::byte* src, float* values) {
  const float d = half_at(src + 64);
  for (std::size_t i = 0; i < kLarge; ++i)
    values[i] = d * (static_cast<float>(pair_of_bits(src, i)) - 1);
}

}  // namespace

void decode_value_block(GgmlType type, const std::byte* src, float* values) {
  switch (type) {
    case GgmlType::kQ41:
      return decode_q41(src, values);
    case GgmlType::kQ50:
      return decode_q50(src, values);
    case GgmlType::kQ51:
      return decode_q51(src, values);
    case GgmlType::kQ2K:
      return decode_q2k(src, values);
    case GgmlType::kQ3K:
      return decode_q3k(src, values);
    case GgmlType::kIq4Nl:
      return decode_iq4nl(src, values);
    case GgmlType::kIq4Xs:
      return decode_iq4xs(src, values);
    case GgmlType::kTq10:
      return decode_tq10(src, values);
    case GgmlType::kTq20:
      return decode_tq20(src, values);
    case GgmlType::kMxfp4:
      return decode_mxfp4(src, values);
    default:
      PITON_ASSERT(false, "{} has codes, or is not quantized", name(type));
  }
}

}  // namespace piton
