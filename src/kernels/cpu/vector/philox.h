// Philox4x32-10 for neighbouring counters at once; the same numbers as base/philox.h.
#pragma once

#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {

// Columns of one call of mask_factors: four words each of kLanes counters.
constexpr int kMaskBlock = 4 * kLanes;

// factors[i] = 0 or mask.scale for columns first .. first + kMaskBlock - 1; first is a multiple of 4.
PITON_INLINE void mask_factors(const MaskRow& mask, std::uint32_t first, float* factors) {
  std::uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    c0[i] = mask.counter[0];
    c1[i] = mask.counter[1];
    c2[i] = mask.counter[2];
    c3[i] = first / 4 + static_cast<std::uint32_t>(i);
  }
  std::uint32_t low = mask.key_low, high = mask.key_high;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kLanes; ++i) {
      const std::uint64_t a = std::uint64_t{0xD2511F53U} * c0[i];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * c2[i];
      c0[i] = static_cast<std::uint32_t>(b >> 32) ^ c1[i] ^ low;
      c2[i] = static_cast<std::uint32_t>(a >> 32) ^ c3[i] ^ high;
      c1[i] = static_cast<std::uint32_t>(b);
      c3[i] = static_cast<std::uint32_t>(a);
    }
    low += 0x9E3779B9U;
    high += 0xBB67AE85U;
  }
  for (int i = 0; i < kLanes; ++i) {
    factors[4 * i] = c0[i] >= mask.threshold ? mask.scale : 0.0F;
    factors[4 * i + 1] = c1[i] >= mask.threshold ? mask.scale : 0.0F;
    factors[4 * i + 2] = c2[i] >= mask.threshold ? mask.scale : 0.0F;
    factors[4 * i + 3] = c3[i] >= mask.threshold ? mask.scale : 0.0F;
  }
}

}  // namespace piton::cpu::PITON_ISA
