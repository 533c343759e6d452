// What vectors of x86-64 need beyond the operators of the compiler (simd.h, which includes it).
#pragma once

#include <immintrin.h>  // only functions that are always inlined

#define PITON_VECTOR_REGISTER "v"

namespace piton::cpu::PITON_ISA {

constexpr int kRegisters = kLanes == 16 ? 32 : 16;

// AVX2 has no register to spare: GCC
// chooses forms that overwrite a or b, and then moves a sum through memory. So the form is written.
PITON_INLINE F add_product(F sum, F a, F b) {
  if constexpr (kLanes == 8) {
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  } else {
    sum += a * b;
  }
  return sum;
}

// One instruction. GCC 12 makes five of __builtin_convertvector where a vector has 32 or 64 bytes.
// A template, so that only the intrinsic of this set is compiled.
template <typename Words>
PITON_INLINE U widen_words(Words h) {
  if constexpr (sizeof h == 32) {
    return (U)_mm512_cvtepu16_epi32((__m256i)h);
  } else if constexpr (sizeof h == 16) {
    return (U)_mm256_cvtepu16_epi32((__m128i)h);
  } else {
    return __builtin_convertvector(h, U);
  }
}
// The same for signed bytes.
template <typename Bytes>
PITON_INLINE I widen_bytes(Bytes b) {
  if constexpr (sizeof b == 16) {
    return (I)_mm512_cvtepi8_epi32((__m128i)b);
  } else if constexpr (sizeof b == 8) {
    return (I)_mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)b));
  } else {
    return __builtin_convertvector(b, I);
  }
}

}  // namespace piton::cpu::PITON_ISA
