// philox_normals: the arithmetic of philox.cpp, one loop iteration for each pair of normals, with
// selections instead of branches, so that the compiler vectorizes it. Every operation is correctly
// rounded and none is contracted, so the bits are those of philox.cpp.
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "base/platform.h"

namespace piton {
namespace {

constexpr int kBlocks = 64;          // Philox blocks of four words that are computed together
constexpr int kPairs = 2 * kBlocks;  // first all pairs of words 0 and 1, then of words 2 and 3

struct Words {
  std::uint32_t lane[4][kBlocks];
};

PITON_VECTOR_CLONES
void draw(PhiloxKey key, std::uint64_t first_block, Words& words) {
  for (int i = 0; i < kBlocks; ++i) {
    const std::uint64_t block = first_block + static_cast<std::uint64_t>(i);
    words.lane[0][i] = static_cast<std::uint32_t>(block);
    words.lane[1][i] = static_cast<std::uint32_t>(block >> 32);
    words.lane[2][i] = 0;
    words.lane[3][i] = 1;
  }
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kBlocks; ++i) {
      const std::uint64_t a = std::uint64_t{0xD2511F53U} * words.lane[0][i];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * words.lane[2][i];
      words.lane[0][i] = static_cast<std::uint32_t>(b >> 32) ^ words.lane[1][i] ^ key.low;
      words.lane[1][i] = static_cast<std::uint32_t>(b);
      words.lane[2][i] = static_cast<std::uint32_t>(a >> 32) ^ words.lane[3][i] ^ key.high;
      words.lane[3][i] = static_cast<std::uint32_t>(a);
    }
    key.low += 0x9E3779B9U;
    key.high += 0xBB67AE85U;
  }
}

// radius = sqrt(-2 ln u); see log_of() in philox.cpp.
PITON_VECTOR_CLONES
void radii(const double* uniform, double* radius) {
  for (int i = 0; i < kPairs; ++i) {
    const auto bits = std::bit_cast<std::uint64_t>(uniform[i]);
    const double whole =
        std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
    const double half = whole * 0.5;
    const bool large = whole >= 1.4142135623730951;
    const double m = large ? half : whole;
    const double exponent =
        static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023) + (large ? 1.0 : 0.0);
    const double s = (m - 1.0) / (m + 1.0);
    const double z = s * s;
    double sum = 1.0 / 21.0;
    for (int n = 19; n >= 3; n -= 2) sum = sum * z + 1.0 / n;
    constexpr double kLn2High = 0x1.62e42feep-1;
    constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
    const double twice = 2.0 * s;
    radius[i] = std::sqrt(
        -2.0 * (exponent * kLn2High + (twice + (twice * (z * sum) + exponent * kLn2Low))));
  }
}

// out = radius x cosine and radius x sine of an angle in turns; see sine_and_cosine_of_turns().
PITON_VECTOR_CLONES
void points(const double* turns, const double* radius, double* first, double* second) {
  for (int i = 0; i < kPairs; ++i) {
    const double quarters = turns[i] * 4.0;
    const auto quadrant = static_cast<std::int32_t>(quarters + 0.5);
    const double x = (quarters - quadrant) * 1.5707963267948966;
    const double z = x * x;
    double sine = 1.0;
    for (int n = 16; n >= 2; n -= 2) sine = 1.0 - z / (n * (n + 1.0)) * sine;
    sine = x * sine;
    double cosine = 1.0;
    for (int n = 15; n >= 1; n -= 2) cosine = 1.0 - z / (n * (n + 1.0)) * cosine;
    const bool swap = (quadrant & 1) != 0;
    const double u = swap ? cosine : sine;
    const double v = swap ? sine : cosine;
    first[i] = radius[i] * ((quadrant + 1) & 2 ? -v : v);
    second[i] = radius[i] * (quadrant & 2 ? -u : u);
  }
}

PITON_VECTOR_CLONES
void uniforms(const std::uint32_t* words, double* uniform) {
  for (int i = 0; i < kBlocks; ++i) uniform[i] = (words[i] + 0.5) * 0x1p-32;
}

}  // namespace

void philox_normals(PhiloxKey key, std::uint64_t first_block, std::span<double> out) {
  PITON_ASSERT(out.size() % 4 == 0);
  Words words;
  double uniform[kPairs], turns[kPairs], radius[kPairs], first[kPairs], second[kPairs];
  for (std::size_t at = 0; at < out.size(); at += 4 * kBlocks) {
    draw(key, first_block + at / 4, words);
    uniforms(words.lane[0], uniform);
    uniforms(words.lane[2], uniform + kBlocks);
    uniforms(words.lane[1], turns);
    uniforms(words.lane[3], turns + kBlocks);
    radii(uniform, radius);
    points(turns, radius, first, second);
    const std::size_t blocks = std::min<std::size_t>(kBlocks, (out.size() - at) / 4);
    double* to = out.data() + at;
    for (std::size_t i = 0; i < blocks; ++i) {
      to[4 * i] = first[i];
      to[4 * i + 1] = second[i];
      to[4 * i + 2] = first[kBlocks + i];
      to[4 * i + 3] = second[kBlocks + i];
    }
  }
}

}  // namespace piton
