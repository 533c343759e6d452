// Words of AVX512BW (codes_loops.h).
#pragma once

#include "kernels/cpu/vector/words_512.h"

namespace piton::cpu::PITON_ISA {

PITON_INLINE W add_products(W sum, W a, W b) {
  return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
}

}  // namespace piton::cpu::PITON_ISA
