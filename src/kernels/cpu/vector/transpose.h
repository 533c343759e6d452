// Transposes squares of words in registers.
#pragma once

#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {

// Interleaves a and b: `low` from their first halves, `high` from their second.
template <typename V>
PITON_INLINE void interleave(V a, V b, V& low, V& high) {
  if constexpr (kLanes == 16) {
    low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    high =
        __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  } else if constexpr (kLanes == 8) {
    low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  } else {
    low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  }
}

// The same within each half of 8 words, by single words or pairs of them: one instruction each,
// whereas shuffles that cross the halves take two.
template <typename V>
PITON_INLINE void interleave_words(V a, V b, V& low, V& high) {
  low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
  high = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
}
template <typename V>
PITON_INLINE void interleave_pairs(V a, V b, V& low, V& high) {
  low = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
  high = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
}

// 8 x 8: four squares of 4 x 4, whose halves change places last.
template <typename V, int lanes>
PITON_INLINE void transpose_by_halves(V (&rows)[lanes]) {
  V words[lanes];
  V pairs[lanes];
  for (int i = 0; i < 8; i += 2) interleave_words(rows[i], rows[i + 1], words[i], words[i + 1]);
  for (int i = 0; i < 8; i += 4) {
    interleave_pairs(words[i], words[i + 2], pairs[i], pairs[i + 1]);
    interleave_pairs(words[i + 1], words[i + 3], pairs[i + 2], pairs[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = __builtin_shufflevector(pairs[i], pairs[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    rows[i + 4] = __builtin_shufflevector(pairs[i], pairs[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// Transposes a square in place: log2(lanes) perfect shuffles of its rows.
PITON_INLINE void transpose(U (&rows)[kLanes]) {
  if constexpr (kLanes == 8) {
    transpose_by_halves(rows);
  } else {
    for (int round = 1; round < kLanes; round *= 2) {
      U next[kLanes];
      for (int i = 0; i < kLanes / 2; ++i) {
        interleave(rows[i], rows[i + kLanes / 2], next[2 * i], next[2 * i + 1]);
      }
      for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
    }
  }
}

}  // namespace piton::cpu::PITON_ISA
