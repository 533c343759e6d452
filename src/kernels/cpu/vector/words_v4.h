// Words of AVX512BW (codes_loops.h).
#pragma once

#include "kernels/cpu/vector/words_512.h"

namespace piton::cpu::PITON_ISA {

PITON_INLINE W add_products(W sum, W a, W b) {
  sum = _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
  __asm__(""
          : "+v"(sum));  // otherwise products are added in another order, and do not fit registers
  return sum;
}

}  // namespace piton::cpu::PITON_ISA
