#include "base/philox.h"

#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"

namespace piton {
namespace {

// The functions below use products, sums, quotients and roots alone, each correctly rounded by
// IEEE 754, in a fixed order and without contraction (the build sets -ffp-contract=off). A libm
// may round its log and cos differently from machine to machine; these may not.

// Natural logarithm of x in (0, 1), not subnormal, to a few units in the last place.
//   x = m 2^e, m in [sqrt(1/2), sqrt(2));  ln m = 2 atanh(s), s = (m - 1) / (m + 1)
// |s| <= 0.1716: the first omitted term, s^22 / 23 relative to the sum, is below 7e-19.
double log_of(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
  if (m >= 1.4142135623730951) {
    m = m * 0.5;
    exponent += 1;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double sum = 1.0 / 21.0;
  for (int n = 19; n >= 3; n -= 2) sum = sum * z + 1.0 / n;
  // ln 2 in two parts; the high one has 32 trailing zero bits, so its product with e is exact.
  constexpr double kLn2High = 0x1.62e42feep-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const double twice = 2.0 * s;
  return exponent * kLn2High + (twice + (twice * (z * sum) + exponent * kLn2Low));
}

struct SineAndCosine {
  double sine;
  double cosine;
};

// Sine and cosine of the angle 2 pi turns, turns in (0, 1). The reduction to an eighth of a turn is
// exact. Taylor series for |x| <= pi/4: the first omitted terms, x^19/19! and x^18/18!, are below
// 3e-18.
SineAndCosine sine_and_cosine_of_turns(double turns) {
  const double quarters = turns * 4.0;
  const int quadrant = static_cast<int>(quarters + 0.5);  // nearest; quarters > 0
  const double x = (quarters - quadrant) * 1.5707963267948966;
  const double z = x * x;
  double sine = 1.0;
  for (int n = 16; n >= 2; n -= 2) sine = 1.0 - z / (n * (n + 1.0)) * sine;
  sine = x * sine;
  double cosine = 1.0;
  for (int n = 15; n >= 1; n -= 2) cosine = 1.0 - z / (n * (n + 1.0)) * cosine;
  switch (quadrant & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

// Box-Muller. (word + 1/2) / 2^32 is exact and never 0 or 1, so |normal| < 6.8.
void normal_pair(std::uint32_t radius_word, std::uint32_t angle_word, double* pair) {
  const double radius = std::sqrt(-2.0 * log_of((radius_word + 0.5) * 0x1p-32));
  const auto [sine, cosine] = sine_and_cosine_of_turns((angle_word + 0.5) * 0x1p-32);
  pair[0] = radius * cosine;
  pair[1] = radius * sine;
}

PhiloxBlock weight_block(PhiloxKey key, std::uint64_t block) {
  return philox(key,
                {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 1});
}

}  // namespace

PhiloxKey site_key(std::uint64_t seed, std::string_view site) {
  const std::uint64_t hash = hash64(site, seed);
  return {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)};
}

double philox_normal(PhiloxKey key, std::uint64_t index) {
  const PhiloxBlock words = weight_block(key, index / 4);
  const std::size_t first = index % 4 < 2 ? 0 : 2;
  double pair[2];
  normal_pair(words[first], words[first + 1], pair);
  return pair[index % 2];
}

std::array<double, 4> philox_normal4(PhiloxKey key, std::uint64_t block) {
  const PhiloxBlock words = weight_block(key, block);
  std::array<double, 4> normals;
  normal_pair(words[0], words[1], normals.data());
  normal_pair(words[2], words[3], normals.data() + 2);
  return normals;
}

}  // namespace piton
