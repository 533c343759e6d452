// Words of SSSE3 (codes_loops.h).
#pragma once

#include <immintrin.h>  // only functions that are always inlined

#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {

typedef __m128i W;
PITON_INLINE W load_words(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
PITON_INLINE W shifted(W x, int bits) { return _mm_srli_epi16(x, bits); }
PITON_INLINE W nibble(W x) { return _mm_and_si128(x, _mm_set1_epi16(15)); }
PITON_INLINE W low_bytes(W x) { return _mm_srai_epi16(_mm_slli_epi16(x, 8), 8); }
PITON_INLINE W high_bytes(W x) { return _mm_srai_epi16(x, 8); }
PITON_INLINE W load_bytes(const std::uint8_t* p) {
  return _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
PITON_INLINE W even_quarters(W x, W) { return x; }
PITON_INLINE W odd_quarters(W, W y) { return y; }
PITON_INLINE W low_pairs(W x, W y) { return _mm_unpacklo_epi32(x, y); }
PITON_INLINE W high_pairs(W x, W y) { return _mm_unpackhi_epi32(x, y); }
PITON_INLINE W low_halves(W x, W y) { return _mm_unpacklo_epi64(x, y); }
PITON_INLINE W high_halves(W x, W y) { return _mm_unpackhi_epi64(x, y); }
PITON_INLINE F permuted(F x, U index) {
  const U bytes = index * 0x04040404U + 0x03020100U;
  return (F)_mm_shuffle_epi8((__m128i)x, (__m128i)bytes);
}
PITON_INLINE F load_halves(const void* p) { return load(static_cast<const Half*>(p)); }
PITON_INLINE W raised(W x) { return _mm_slli_epi16(x, 8); }
PITON_INLINE W add_products(W sum, W a, W b) { return _mm_add_epi32(sum, _mm_madd_epi16(a, b)); }
PITON_INLINE F as_floats(W sum) { return (F)_mm_cvtepi32_ps(sum); }
PITON_INLINE W pick_bytes(W table, W x) { return _mm_shuffle_epi8(table, x); }
PITON_INLINE W all_words(int x) { return _mm_set1_epi16(static_cast<short>(x)); }
PITON_INLINE W repeated(const std::uint8_t* p) { return load_words(p); }

PITON_INLINE std::int64_t expand_pairs(float*, const std::uint8_t*, std::int64_t, const float*) {
  return 0;
}

}  // namespace piton::cpu::PITON_ISA

#include "kernels/cpu/vector/byte_tables.h"
