// Philox4x32-10 for neighboring counters at once; the same numbers as base/random/philox.h.
#pragma once

#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {

// Columns of one call of mask_factors: four words each of kLanes counters.
constexpr int kMaskBlock = 4 * kLanes;

typedef std::uint64_t U64 __attribute__((vector_size(PITON_VECTOR_BYTES)));

struct Wide {
  U high;
  U low;
};

// The 64-bit products of `factor` and each lane, for even and odd lanes separately.
PITON_INLINE Wide multiply(U x, std::uint32_t factor) {
  const U64 word = U64{} + 0xFFFFFFFFU;
  const U64 m = U64{} + factor;
  const U64 even = ((U64)x & word) * m;
  const U64 odd = ((U64)x >> 32) * m;
  return {(U)((even >> 32) | (odd & ~word)), (U)((even & word) | (odd << 32))};
}

template <int... lane>
struct Lanes {};
template <int n, int... lane>
struct CountLanes : CountLanes<n - 1, n - 1, lane...> {};
template <int... lane>
struct CountLanes<0, lane...> {
  using Type = Lanes<lane...>;
};

// a0 b0 a1 b1 ...: the first and the second half.
template <int... lane>
PITON_INLINE U interleave_low(U a, U b, Lanes<lane...>) {
  return __builtin_shufflevector(a, b, (lane / 2 + lane % 2 * kLanes)...);
}
template <int... lane>
PITON_INLINE U interleave_high(U a, U b, Lanes<lane...>) {
  return __builtin_shufflevector(a, b, (kLanes / 2 + lane / 2 + lane % 2 * kLanes)...);
}

// words[i] of the counters' columns first + i * kLanes .. + kLanes - 1, i below 4; first is a
// multiple of 4.
PITON_INLINE void mask_words(const MaskRow& mask, std::uint32_t first, U* words) {
  U c0 = splat_u(mask.counter[0]);
  U c1 = splat_u(mask.counter[1]);
  U c2 = splat_u(mask.counter[2]);
  U c3 = (U)lane_indices() + first / 4;
  std::uint32_t low = mask.key_low, high = mask.key_high;
  for (int round = 0; round < 10; ++round) {
    const Wide a = multiply(c0, 0xD2511F53U);
    const Wide b = multiply(c2, 0xCD9E8D57U);
    c0 = b.high ^ c1 ^ low;
    c1 = b.low;
    c2 = a.high ^ c3 ^ high;
    c3 = a.low;
    low += 0x9E3779B9U;
    high += 0xBB67AE85U;
  }
  // Words of one counter are neighbors.
  using All = CountLanes<kLanes>::Type;
  const U even_low = interleave_low(c0, c2, All{}), even_high = interleave_high(c0, c2, All{});
  const U odd_low = interleave_low(c1, c3, All{}), odd_high = interleave_high(c1, c3, All{});
  words[0] = interleave_low(even_low, odd_low, All{});
  words[1] = interleave_high(even_low, odd_low, All{});
  words[2] = interleave_low(even_high, odd_high, All{});
  words[3] = interleave_high(even_high, odd_high, All{});
}

// factors[i] = 0 or mask.scale for columns first .. first + kMaskBlock - 1; first is a multiple
// of 4.
PITON_INLINE void mask_factors(const MaskRow& mask, std::uint32_t first, float* factors) {
  U words[4];
  mask_words(mask, first, words);
  for (int i = 0; i < 4; ++i) {
    store(factors + i * kLanes,
          words[i] >= splat_u(mask.threshold) ? splat(mask.scale) : splat(0.0F));
  }
}

}  // namespace piton::cpu::PITON_ISA
