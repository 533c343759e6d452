// What vectors of NEON need beyond the operators of the compiler (simd.h, which includes it).
#pragma once

#include <arm_neon.h>  // only functions that are always inlined

#define PITON_VECTOR_REGISTER "w"

namespace piton::cpu::PITON_ISA {

constexpr int kRegisters = 32;

PITON_INLINE F add_product(F sum, F a, F b) {
  return (F)vfmaq_f32((float32x4_t)sum, (float32x4_t)a, (float32x4_t)b);
}
PITON_INLINE U widen_words(H h) { return (U)vmovl_u16((uint16x4_t)h); }
template <typename Bytes>
PITON_INLINE I widen_bytes(Bytes b) {
  return __builtin_convertvector(b, I);
}

}  // namespace piton::cpu::PITON_ISA
