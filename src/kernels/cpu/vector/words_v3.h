// Words of AVX2 (codes_loops.h).
#pragma once

#include <immintrin.h>  // only functions that are always inlined

#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {

typedef __m256i W;
PITON_INLINE W load_words(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
PITON_INLINE W shifted(W x, int bits) { return _mm256_srli_epi16(x, bits); }
PITON_INLINE W nibble(W x) { return _mm256_and_si256(x, _mm256_set1_epi16(15)); }
PITON_INLINE W low_bytes(W x) { return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8); }
PITON_INLINE W high_bytes(W x) { return _mm256_srai_epi16(x, 8); }
PITON_INLINE W load_bytes(const std::uint8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
PITON_INLINE W even_quarters(W x, W y) { return _mm256_permute2x128_si256(x, y, 0x20); }
PITON_INLINE W odd_quarters(W x, W y) { return _mm256_permute2x128_si256(x, y, 0x31); }
PITON_INLINE W low_pairs(W x, W y) { return _mm256_unpacklo_epi32(x, y); }
PITON_INLINE W high_pairs(W x, W y) { return _mm256_unpackhi_epi32(x, y); }
PITON_INLINE W low_halves(W x, W y) { return _mm256_unpacklo_epi64(x, y); }
PITON_INLINE W high_halves(W x, W y) { return _mm256_unpackhi_epi64(x, y); }
PITON_INLINE F permuted(F x, U index) {
  return (F)_mm256_permutevar8x32_ps((__m256)x, (__m256i)index);
}
PITON_INLINE F load_halves(const void* p) {
  return (F)_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
PITON_INLINE W raised(W x) { return _mm256_slli_epi16(x, 8); }
PITON_INLINE W add_products(W sum, W a, W b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
PITON_INLINE F as_floats(W sum) { return (F)_mm256_cvtepi32_ps(sum); }
PITON_INLINE W pick_bytes(W table, W x) { return _mm256_shuffle_epi8(table, x); }
PITON_INLINE W all_words(int x) { return _mm256_set1_epi16(static_cast<short>(x)); }
PITON_INLINE W repeated(const std::uint8_t* p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// The entry of each index, of which the low four bits count.
PITON_INLINE __m256 look_up(__m256 low, __m256 high, __m256i index) {
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, index),
                          _mm256_permutevar8x32_ps(high, index),
                          _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
PITON_INLINE std::int64_t expand_pairs(float* to, const std::uint8_t* codes, std::int64_t n,
                                       const float* table) {
  const __m256 low = _mm256_loadu_ps(table);
  const __m256 high = _mm256_loadu_ps(table + 8);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i bytes =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i / 2)));
    const __m256 even = look_up(low, high, bytes);
    const __m256 odd = look_up(low, high, _mm256_srli_epi32(bytes, 4));
    const __m256 first = _mm256_unpacklo_ps(even, odd);
    const __m256 second = _mm256_unpackhi_ps(even, odd);
    _mm256_storeu_ps(to + i, _mm256_permute2f128_ps(first, second, 0x20));
    _mm256_storeu_ps(to + i + 8, _mm256_permute2f128_ps(first, second, 0x31));
  }
  return i;
}

}  // namespace piton::cpu::PITON_ISA

#include "kernels/cpu/vector/byte_tables.h"
