// Words of NEON (codes_loops.h).
#pragma once

#include <arm_neon.h>  // only functions that are always inlined

#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {

typedef int16x8_t W;
PITON_INLINE W load_words(const void* p) { return vld1q_s16(static_cast<const std::int16_t*>(p)); }
PITON_INLINE W shifted(W x, int bits) { return (W)((uint16x8_t)x >> bits); }
PITON_INLINE W nibble(W x) { return x & 15; }
PITON_INLINE W low_bytes(W x) { return (x << 8) >> 8; }
PITON_INLINE W high_bytes(W x) { return x >> 8; }
PITON_INLINE W load_bytes(const std::uint8_t* p) {
  return vmovl_s8(vld1_s8(reinterpret_cast<const std::int8_t*>(p)));
}
PITON_INLINE W even_quarters(W x, W) { return x; }
PITON_INLINE W odd_quarters(W, W y) { return y; }
PITON_INLINE W low_pairs(W x, W y) { return (W)vzip1q_s32((int32x4_t)x, (int32x4_t)y); }
PITON_INLINE W high_pairs(W x, W y) { return (W)vzip2q_s32((int32x4_t)x, (int32x4_t)y); }
PITON_INLINE W low_halves(W x, W y) { return (W)vzip1q_s64((int64x2_t)x, (int64x2_t)y); }
PITON_INLINE W high_halves(W x, W y) { return (W)vzip2q_s64((int64x2_t)x, (int64x2_t)y); }
PITON_INLINE F permuted(F x, U index) {
  const U bytes = index * 0x04040404U + 0x03020100U;
  return (F)vqtbl1q_u8((uint8x16_t)x, (uint8x16_t)bytes);
}
PITON_INLINE F load_halves(const void* p) {
  return (F)vcvt_f32_f16((float16x4_t)vld1_u16(static_cast<const std::uint16_t*>(p)));
}
PITON_INLINE W raised(W x) { return x << 8; }
// Sums wrap around, as those of the other sets.
PITON_INLINE W add_products(W sum, W a, W b) {
  const int32x4_t low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
  const int32x4_t high = vmull_high_s16(a, b);
  return (W)vaddq_s32((int32x4_t)sum, vpaddq_s32(low, high));
}
PITON_INLINE F as_floats(W sum) { return (F)vcvtq_f32_s32((int32x4_t)sum); }
PITON_INLINE W pick_bytes(W table, W x) { return (W)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)x); }
PITON_INLINE W all_words(int x) { return vdupq_n_s16(static_cast<std::int16_t>(x)); }
PITON_INLINE W repeated(const std::uint8_t* p) { return load_words(p); }

PITON_INLINE std::int64_t expand_pairs(float*, const std::uint8_t*, std::int64_t, const float*) {
  return 0;
}

}  // namespace piton::cpu::PITON_ISA

#include "kernels/cpu/vector/byte_tables.h"
