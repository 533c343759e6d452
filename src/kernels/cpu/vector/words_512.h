// Words of 512 bits (codes_loops.h).
#pragma once

#include <immintrin.h>  // only functions that are always inlined

#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {

typedef __m512i W;
PITON_INLINE W load_words(const void* p) { return _mm512_loadu_si512(p); }
PITON_INLINE W shifted(W x, int bits) { return _mm512_srli_epi16(x, bits); }
PITON_INLINE W nibble(W x) { return _mm512_and_si512(x, _mm512_set1_epi16(15)); }
PITON_INLINE W low_bytes(W x) { return _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8); }
PITON_INLINE W high_bytes(W x) { return _mm512_srai_epi16(x, 8); }
PITON_INLINE W load_bytes(const std::uint8_t* p) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
PITON_INLINE W even_quarters(W x, W y) { return _mm512_shuffle_i64x2(x, y, 0x88); }
PITON_INLINE W odd_quarters(W x, W y) { return _mm512_shuffle_i64x2(x, y, 0xDD); }
PITON_INLINE W low_pairs(W x, W y) { return _mm512_unpacklo_epi32(x, y); }
PITON_INLINE W high_pairs(W x, W y) { return _mm512_unpackhi_epi32(x, y); }
PITON_INLINE W low_halves(W x, W y) { return _mm512_unpacklo_epi64(x, y); }
PITON_INLINE W high_halves(W x, W y) { return _mm512_unpackhi_epi64(x, y); }
PITON_INLINE F permuted(F x, U index) {
  return (F)_mm512_permutexvar_ps((__m512i)index, (__m512)x);
}
PITON_INLINE F load_halves(const void* p) {
  return (F)_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
PITON_INLINE F as_floats(W sum) { return (F)_mm512_cvtepi32_ps(sum); }

PITON_INLINE float add_lanes(F x) { return _mm512_reduce_add_ps((__m512)x); }

struct WordTable {
  explicit WordTable(const std::int16_t* t)
      : twice(_mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(t)))) {}
  W of(W x) const { return _mm512_permutexvar_epi16(x, twice); }
  W twice;
};

PITON_INLINE std::int64_t expand_pairs(float* to, const std::uint8_t* codes, std::int64_t n,
                                       const float* table) {
  const __m512 values = _mm512_loadu_ps(table);
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512i bytes =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i / 2)));
    const __m512 even = _mm512_permutexvar_ps(bytes, values);
    const __m512 odd = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), values);
    _mm512_storeu_ps(to + i, _mm512_permutex2var_ps(even, low, odd));
    _mm512_storeu_ps(to + i + 16, _mm512_permutex2var_ps(even, high, odd));
  }
  return i;
}

}  // namespace piton::cpu::PITON_ISA
