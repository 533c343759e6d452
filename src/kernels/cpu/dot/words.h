// Words of two bf16 that are neighbors in k, 16 at a time: loads and transposes for packing.
// Included by files of dot and amx only: they are compiled for AVX512_BF16.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/vector/table.h"

#define PITON_INLINE static inline __attribute__((always_inline))

namespace piton::cpu {

PITON_INLINE __mmask16 first_words(std::int64_t count) {
  return count >= 16 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>((1U << count) - 1);
}

// Up to 16 bf16 of a row, each in the low half of a word.
PITON_INLINE __m512i load(const Matrix& rows, std::int64_t row, std::int64_t column,
                          __mmask16 mask) {
  if (rows.type == Type::kBF16) {
    const auto* from = static_cast<const std::uint16_t*>(rows.data) + row * rows.stride + column;
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
  }
  const auto* from = static_cast<const float*>(rows.data) + row * rows.stride + column;
  return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from)));
}

// Words (row, row + 1) of 16 columns; a row beyond k is 0.
PITON_INLINE __m512i words(const Matrix& rows, std::int64_t row, std::int64_t k,
                           std::int64_t column, __mmask16 mask) {
  const __m512i low = load(rows, row, column, mask);
  if (row + 1 >= k) return low;
  return _mm512_or_si512(low, _mm512_slli_epi32(load(rows, row + 1, column, mask), 16));
}

// Words of 32 columns of two rows of bf16.
PITON_INLINE void interleave(__m512i& low, __m512i& high, const std::uint16_t* row,
                             const std::uint16_t* next) {
  alignas(64) static constexpr std::uint16_t kLow[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                         37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                         11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i order = _mm512_load_si512(kLow);
  const __m512i a = _mm512_loadu_si512(row);
  const __m512i b = _mm512_loadu_si512(next);
  low = _mm512_permutex2var_epi16(a, order, b);
  high = _mm512_permutex2var_epi16(a, _mm512_add_epi16(order, _mm512_set1_epi16(16)), b);
}

// Transposes 16 x 16 words in place.
PITON_INLINE void transpose(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
  }
}

}  // namespace piton::cpu
