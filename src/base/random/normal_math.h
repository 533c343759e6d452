// The mathematics of normal draws (Box-Muller), for one number. Only products, sums, quotients and
// square roots, each correctly rounded by IEEE 754, in a fixed order and without contraction (the
// build sets -ffp-contract=off): the results are the same on every machine, unlike those of log and
// cos in libm. Selections instead of branches, so that loops over them vectorize.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace piton {

// (word + 1/2) / 2^32: exact, and never 0 or 1.
[[gnu::always_inline]] inline double uniform_of(std::uint32_t word) {
  return (word + 0.5) * 0x1p-32;
}

// Natural logarithm of x in (0, 1), not subnormal, to a few units in the last place.
//   x = m 2^e, m in [sqrt(1/2), sqrt(2));  ln m = 2 atanh(s), s = (m - 1) / (m + 1)
// |s| <= 0.1716: the first omitted term, s^22 / 23 relative to the sum, is below 7e-19.
[[gnu::always_inline]] inline double log_of(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
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
  // ln 2 in two parts; the high one has 32 trailing zero bits, so its product with e is exact.
  constexpr double kLn2High = 0x1.62e42feep-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const double twice = 2.0 * s;
  return exponent * kLn2High + (twice + (twice * (z * sum) + exponent * kLn2Low));
}

// The radius of a pair of normals; below 6.8 for a uniform_of().
[[gnu::always_inline]] inline double radius_of(double uniform) {
  return std::sqrt(-2.0 * log_of(uniform));
}

struct SineAndCosine {
  double sine;
  double cosine;
};

// Sine and cosine of the angle 2 pi turns, turns in (0, 1). The reduction to an eighth of a turn is
// exact. Taylor series for |x| <= pi/4: the first omitted terms, x^19/19! and x^18/18!, are below
// 3e-18.
[[gnu::always_inline]] inline SineAndCosine sine_and_cosine_of_turns(double turns) {
  const double quarters = turns * 4.0;
  const auto quadrant = static_cast<std::int32_t>(quarters + 0.5);  // nearest; quarters > 0
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
  return {.sine = quadrant & 2 ? -u : u, .cosine = (quadrant + 1) & 2 ? -v : v};
}

}  // namespace piton
