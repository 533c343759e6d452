// Words of AVX512_VNNI (codes_loops.h), which every processor with bf16 dot products has.
#pragma once

#include "kernels/cpu/vector/words_512.h"

namespace piton::cpu::PITON_ISA {

PITON_INLINE W add_products(W sum, W a, W b) { return _mm512_dpwssd_epi32(sum, a, b); }

}  // namespace piton::cpu::PITON_ISA
