// The allowed difference of two correct computations. All tests take their tolerances from here.
//
// Let u be the unit roundoff: half the distance from 1 to the next number.
//
//   storage   u = 2^-53 fp64, 2^-24 fp32, 2^-11 fp16, 2^-8 bf16
//   sums      in fp32 (u = 2^-24) for all but fp64
//
// relative Both sides round their result once: 2 u(storage). exp, tanh, sqrt and division are
// accurate to some units in the last place of the sums: 16 u(sums). absolute A sum of n products of
// unit-variance numbers grows to about sqrt(n); each of its n additions has an error of up to
// u(sums) sqrt(n), and n independent errors add up to sqrt(n) times as much: n u(sums), with a
// factor 4 for the worst of some ten thousand elements.
//             If operands are rounded to 16 bits on the way, each of k terms of size 1 has an error
//             of up to u(storage); the sum of them is sqrt(k) u(storage) / 2 on average, times 4
//             for the worst. k is n for a product whose wide operand is rounded first (gradients of
//             logits); for probabilities in attention, n terms of size 1/sqrt(n), it is 1.
//
// An error of 1% in fp32 is at least a hundred times larger than this for n up to a few thousand:
// tests/ops/kernels_mutation_test.cpp shows this for every call.
#pragma once

#include <cmath>
#include <cstdint>

#include "tensor/dtype.h"

namespace piton::test {

struct Tolerance {
  double absolute = 0;
  double relative = 0;
};

inline double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-53;
    case DType::kF32:
      return 0x1p-24;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    default:
      return 0;  // integers are exact
  }
}

// `storage`: the narrowest type in which a value on the way to the result is stored. `terms`: the
// longest sum, of terms of size 1. `rounded_terms`: k above.
inline Tolerance tolerance(DType storage, std::int64_t terms, std::int64_t rounded_terms = 1) {
  const double u_storage = unit_roundoff(storage);
  if (u_storage == 0) return {};
  const double u_sums = storage == DType::kF64 ? 0x1p-53 : 0x1p-24;
  const bool narrow = u_storage > u_sums;
  const double rounded = 2 * std::sqrt(static_cast<double>(rounded_terms)) * u_storage;
  return {.absolute = 4 * static_cast<double>(terms) * u_sums + (narrow ? rounded : 0),
          .relative = 2 * u_storage + 16 * u_sums};
}

// Central differences in fp64 with step h: h^2/6 of the third derivative plus 2^-53 |loss| / h.
// With h = 1e-5, third derivatives up to 100 and a loss up to 100 that is 2e-9 + 1e-9; the factor
// 30 is for losses with steeper parts.
inline constexpr double kDifferenceStep = 1e-5;
inline Tolerance difference_tolerance() { return {.absolute = 1e-7, .relative = 1e-6}; }

}  // namespace piton::test
