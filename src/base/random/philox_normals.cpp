// philox_normals: the same draws as philox.cpp, in loops that the compiler vectorizes; one
// iteration makes a pair of normals. Every operation is correctly rounded and none is contracted
// (base/random/normal_math.h), so the bits are the same.
#include <algorithm>

#include "base/error.h"
#include "base/platform.h"
#include "base/random/normal_math.h"
#include "base/random/philox.h"

namespace piton {
namespace {

constexpr int kBlocks = 64;          // Philox blocks of four words that are computed together
constexpr int kPairs = 2 * kBlocks;  // words 0 and 1 first, then words 2 and 3

struct NormalWords {
  std::uint32_t lane[4][kBlocks];
};

PITON_VECTOR_CLONES
void draw(PhiloxKey key, std::uint64_t first_block, NormalWords& words) {
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

PITON_VECTOR_CLONES
void radii(const double* uniform, double* radius) {
  for (int i = 0; i < kPairs; ++i) radius[i] = radius_of(uniform[i]);
}

// out = radius x cosine and radius x sine of an angle, which is given in turns.
PITON_VECTOR_CLONES
void points(const double* turns, const double* radius, double* first, double* second) {
  for (int i = 0; i < kPairs; ++i) {
    const SineAndCosine angle = sine_and_cosine_of_turns(turns[i]);
    first[i] = radius[i] * angle.cosine;
    second[i] = radius[i] * angle.sine;
  }
}

PITON_VECTOR_CLONES
void uniforms(const std::uint32_t* words, double* uniform) {
  for (int i = 0; i < kBlocks; ++i) uniform[i] = uniform_of(words[i]);
}

}  // namespace

void philox_normals(PhiloxKey key, std::uint64_t first_block, std::span<double> out) {
  PITON_ASSERT(out.size() % 4 == 0);
  NormalWords words;
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
