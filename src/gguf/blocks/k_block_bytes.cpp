#include "gguf/blocks/k_block_bytes.h"

#include <cstring>

namespace piton {
namespace {

constexpr std::size_t kScaleBytes = 12;
constexpr std::size_t kPart = 32;  // codes whose bits have one place in a byte

unsigned byte_at(const std::byte* src, std::size_t i) { return std::to_integer<unsigned>(src[i]); }

void add_bits(std::byte* dst, std::size_t i, unsigned bits) {
  dst[i] |= static_cast<std::byte>(bits);
}

void store_scales(const KBlock& block, std::byte* dst) {
  for (std::size_t g = 0; g < 8; ++g) {
    const auto scale = static_cast<unsigned>(block.scales[g]);
    const unsigned minimum = block.minima[g];
    if (g < 4) {
      add_bits(dst, g, scale);
      add_bits(dst, g + 4, minimum);
    } else {
      add_bits(dst, g + 4, (scale & 15) | (minimum & 15) << 4);
      add_bits(dst, g - 4, scale >> 4 << 6);
      add_bits(dst, g, minimum >> 4 << 6);
    }
  }
}

void load_scales(const std::byte* src, KBlock& block) {
  for (std::size_t g = 0; g < 8; ++g) {
    const unsigned scale =
        g < 4 ? byte_at(src, g) & 63 : (byte_at(src, g + 4) & 15) | byte_at(src, g - 4) >> 6 << 4;
    const unsigned minimum =
        g < 4 ? byte_at(src, g + 4) & 63 : byte_at(src, g + 4) >> 4 | byte_at(src, g) >> 6 << 4;
    block.scales[g] = static_cast<std::int8_t>(scale);
    block.minima[g] = static_cast<std::uint8_t>(minimum);
  }
}

// Where the bits of code i are: those below 16, and those above.
struct Places {
  std::size_t low;
  unsigned low_shift;
  std::size_t high;
  unsigned high_shift;
};
Places places(Quantization rule, std::size_t i) {
  const std::size_t part = i / kPart;
  const std::size_t inside = i % kPart;
  if (rule == Quantization::kQ6K) {  // halves of 128: 64 bytes, and 32
    const std::size_t half = part / 4;
    return {half * 2 * kPart + part % 2 * kPart + inside, static_cast<unsigned>(part % 4 / 2 * 4),
            half * kPart + inside, static_cast<unsigned>(part % 4 * 2)};
  }
  return {part / 2 * kPart + inside, static_cast<unsigned>(part % 2 * 4), inside,
          static_cast<unsigned>(part)};
}

// Parts of a block.
struct Offsets {
  std::size_t d, dmin, scales, low, high;
};
Offsets offsets(Quantization rule) {
  if (rule == Quantization::kQ6K) return {208, 0, 192, 0, 128};
  const std::size_t codes = 4 + kScaleBytes;
  return rule == Quantization::kQ5K ? Offsets{0, 2, 4, codes + kPart, codes}
                                    : Offsets{0, 2, 4, codes, codes};
}

}  // namespace

void store_k_block(Quantization rule, const KBlock& block, std::byte* dst) {
  const Offsets at = offsets(rule);
  const bool minima = rule != Quantization::kQ6K;
  std::memset(dst, 0, rule == Quantization::kQ4K ? 144 : rule == Quantization::kQ5K ? 176 : 210);
  std::memcpy(dst + at.d, &block.d.bits, 2);
  if (minima) {
    std::memcpy(dst + at.dmin, &block.dmin.bits, 2);
    store_scales(block, dst + at.scales);
  } else {
    std::memcpy(dst + at.scales, block.scales.data(), block.scales.size());
  }
  for (std::size_t i = 0; i < block.codes.size(); ++i) {
    const Places place = places(rule, i);
    const unsigned code = block.codes[i];
    add_bits(dst, at.low + place.low, (code & 15) << place.low_shift);
    if (rule != Quantization::kQ4K)
      add_bits(dst, at.high + place.high, code >> 4 << place.high_shift);
  }
}

KBlock load_k_block(Quantization rule, const std::byte* src) {
  const Offsets at = offsets(rule);
  KBlock block;
  std::memcpy(&block.d.bits, src + at.d, 2);
  if (rule != Quantization::kQ6K) {
    std::memcpy(&block.dmin.bits, src + at.dmin, 2);
    load_scales(src + at.scales, block);
  } else {
    std::memcpy(block.scales.data(), src + at.scales, block.scales.size());
  }
  const unsigned upper = rule == Quantization::kQ4K ? 0 : rule == Quantization::kQ5K ? 1 : 3;
  for (std::size_t i = 0; i < block.codes.size(); ++i) {
    const Places place = places(rule, i);
    const unsigned low = byte_at(src, at.low + place.low) >> place.low_shift & 15;
    const unsigned high =
        upper == 0 ? 0 : byte_at(src, at.high + place.high) >> place.high_shift & upper;
    block.codes[i] = static_cast<std::uint8_t>(low | high << 4);
  }
  return block;
}

}  // namespace piton
