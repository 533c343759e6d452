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
PITON_INLINE F repeat_four(const float* p) {
  return (F)_mm256_broadcast_ps(reinterpret_cast<const __m128*>(p));
}
PITON_INLINE F pick_of_four(F x, U index) {
  return (F)_mm256_permutevar_ps((__m256)x, (__m256i)index);
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
PITON_INLINE W repeated(__m128i x) { return _mm256_broadcastsi128_si256(x); }

}  // namespace piton::cpu::PITON_ISA

#include "kernels/cpu/vector/byte_tables.h"
