// Exponential and functions derived from it, on vectors. Errors are in units in the last place of
// fp32.
#pragma once

#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {

// e^x within 2 ulp. Below -86.5 it gives 0 (true: under 2.7e-38), above 88.72 infinity; NaN stays.
//   x = n ln 2 + r, |r| <= ln 2 / 2;  e^x = 2^n e^r, e^r by its series to r^7 / 7!
PITON_INLINE F exp(F x) {
  const F magic = splat(0x1.8p23F);  // adding it rounds to an integer in the low mantissa bits
  const F clamped = min(max(x, splat(-86.5F)), splat(88.8F));
  const F safe = x != x ? x : clamped;
  const F shifted = safe * splat(0x1.715476p0F) + magic;
  const F n = shifted - magic;
  F r = safe - n * splat(0x1.62e4p-1F);  // ln 2 in two parts, the first with 12 zero bits
  r = r - n * splat(0x1.7f7d1cp-20F);
  F p = splat(1.0F / 5040);
  p = p * r + splat(1.0F / 720);
  p = p * r + splat(1.0F / 120);
  p = p * r + splat(1.0F / 24);
  p = p * r + splat(1.0F / 6);
  p = p * r + splat(0.5F);
  p = p * r + splat(1.0F);
  p = p * r + splat(1.0F);
  const I exponent = (I)shifted - (I)magic;
  // 2^n as 2^(n-1) * 2: n may be 128.
  const F power = (F)((exponent + splat_i(126)) << 23);
  F y = p * power * splat(2.0F);
  y = x < splat(-86.5F) ? splat(0.0F) : y;
  return x > splat(88.722839F) ? splat(__builtin_inff()) : y;
}

// s = 1 / (1 + e^-x) and 1 - s, both without cancellation.
struct Sigmoid {
  F s;
  F rest;
};
PITON_INLINE Sigmoid sigmoid(F x) {
  const F e = exp(-abs(x));
  const F q = splat(1.0F) / (splat(1.0F) + e);
  const F small = e * q;
  const F s = x >= splat(0.0F) ? q : small;
  const F rest = x >= splat(0.0F) ? small : q;
  return {s, rest};
}

// Within 3 ulp. Below 0.625 by a polynomial in x^2 (Cephes, S. Moshier), above by
// 1 - 2 / (e^(2 |x|) + 1).
PITON_INLINE F tanh(F x) {
  const F z = x * x;
  F p = splat(-5.70498872745e-3F);
  p = p * z + splat(2.06390887954e-2F);
  p = p * z - splat(5.37397155531e-2F);
  p = p * z + splat(1.33314422036e-1F);
  p = p * z - splat(3.33332819422e-1F);
  const F near = p * z * x + x;
  const F size = abs(x);
  const F away = splat(1.0F) - splat(2.0F) / (exp(size + size) + splat(1.0F));
  const F signed_away = x >= splat(0.0F) ? away : -away;
  return size < splat(0.625F) ? near : signed_away;
}

// The normal distribution function, within about 4 ulp where it is above 1e-4:
//   Phi(x) = erfc(-x / sqrt 2) / 2,   erfc(z) = e^(-z^2) t P(t),  t = 1 / (1 + z / 2),  z >= 0
// P interpolates at the Chebyshev nodes of 1/6 <= t <= 1; relative error 5e-8 before rounding.
PITON_INLINE F normal_distribution(F x) {
  const F z = abs(x) * splat(0.70710678F);
  const F t = splat(1.0F) / (splat(1.0F) + splat(0.5F) * z);
  F p = splat(-0.05971491896262249F);
  p = p * t + splat(0.28776830951787974F);
  p = p * t + splat(-0.4938636487458649F);
  p = p * t + splat(0.28569771026385793F);
  p = p * t + splat(-0.03184175737628124F);
  p = p * t + splat(0.20485365511955994F);
  p = p * t + splat(0.2425728929559205F);
  p = p * t + splat(0.2824450419687844F);
  p = p * t + splat(0.28208267366660106F);
  const F tail = splat(0.5F) * exp(splat(-0.5F) * x * x) * t * p;
  return x >= splat(0.0F) ? splat(1.0F) - tail : tail;
}

// exp(-x^2 / 2) / sqrt(2 pi)
PITON_INLINE F normal_density(F x) { return splat(0.39894228F) * exp(splat(-0.5F) * x * x); }

}  // namespace piton::cpu::PITON_ISA
