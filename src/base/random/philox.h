// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011). A number is a pure function of (key, counter): there is no state and no seed
// per rank, so every layout draws the same numbers for the same global coordinates.
//
//   key      hash64(canonical site, seed)            e.g. site "layers.3.attention.dropout"
//   weights  counter = {index / 4 low, index / 4 high, 0, 1}, index into the canonical tensor
//   masks    counter = {sample low, sample high 16 bits << 16 | global head 16 bits,
//                       query position, column / 4}, lane = column mod 4
//            hidden sites have head 0 and column = channel; positions are those of the unsplit row;
//            sample = consumed samples + index in the global batch
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace piton {

struct PhiloxKey {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
};

using PhiloxBlock = std::array<std::uint32_t, 4>;

// Ten rounds. Inline: mask kernels call it for every fourth element.
inline PhiloxBlock philox(PhiloxKey key, PhiloxBlock counter) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key.low, static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key.high, static_cast<std::uint32_t>(a)};
    key.low += 0x9E3779B9U;
    key.high += 0xBB67AE85U;
  }
  return counter;
}

PhiloxKey site_key(std::uint64_t seed, std::string_view site);

// The counter of the four mask words at columns 4*(column/4) .. +3.
inline PhiloxBlock mask_counter(std::uint64_t sample, std::uint32_t head, std::uint32_t position,
                                std::uint32_t column) {
  return {static_cast<std::uint32_t>(sample),
          (static_cast<std::uint32_t>(sample >> 32) << 16) | (head & 0xFFFFU), position,
          column / 4};
}

// A mask word keeps its element if word >= threshold: P(drop) = threshold / 2^32.
inline std::uint32_t drop_threshold(double probability) {
  return static_cast<std::uint32_t>(probability * 4294967296.0);
}

// Standard normal number `index` of the tensor with `key`: Box-Muller in double on two words of a
// block (words 0,1 give indices 4k and 4k+1; words 2,3 give 4k+2 and 4k+3). The logarithm, root and
// cosine are correctly rounded or from one fixed implementation, so that every instruction set
// draws the same bits.
double philox_normal(PhiloxKey key, std::uint64_t index);

// Four at once: indices 4*block .. 4*block+3.
std::array<double, 4> philox_normal4(PhiloxKey key, std::uint64_t block);

// The same bits for indices 4*first_block .. 4*first_block + out.size() - 1, about ten times as
// fast. out.size() is a multiple of 4.
void philox_normals(PhiloxKey key, std::uint64_t first_block, std::span<double> out);

}  // namespace piton
