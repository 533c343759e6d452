// Multiply-adds on registers only.
#include "kernels/cpu/vector/peak.h"

#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {

// Twelve independent sums hide a latency of four cycles at two (narrow) or one (wide) multiply-adds
// per cycle. As named variables they stay in registers.
double fma_loop(std::int64_t rounds) {
  F a = splat(0.999F);
  F b = splat(0.001F);
  asm volatile(""
               : "+" PITON_VECTOR_REGISTER(a),
                 "+" PITON_VECTOR_REGISTER(b));  // unknown to the compiler
  F s0 = b, s1 = b, s2 = b, s3 = b, s4 = b, s5 = b, s6 = b, s7 = b, s8 = b, s9 = b, s10 = b,
    s11 = b;
  for (std::int64_t round = 0; round < rounds; ++round) {
    s0 = s0 * a + b;
    s1 = s1 * a + b;
    s2 = s2 * a + b;
    s3 = s3 * a + b;
    s4 = s4 * a + b;
    s5 = s5 * a + b;
    s6 = s6 * a + b;
    s7 = s7 * a + b;
    s8 = s8 * a + b;
    s9 = s9 * a + b;
    s10 = s10 * a + b;
    s11 = s11 * a + b;
    asm volatile(""
                 : "+" PITON_VECTOR_REGISTER(s0), "+" PITON_VECTOR_REGISTER(s1),
                   "+" PITON_VECTOR_REGISTER(s2), "+" PITON_VECTOR_REGISTER(s3),
                   "+" PITON_VECTOR_REGISTER(s4), "+" PITON_VECTOR_REGISTER(s5),
                   "+" PITON_VECTOR_REGISTER(s6), "+" PITON_VECTOR_REGISTER(s7),
                   "+" PITON_VECTOR_REGISTER(s8), "+" PITON_VECTOR_REGISTER(s9),
                   "+" PITON_VECTOR_REGISTER(s10), "+" PITON_VECTOR_REGISTER(s11));
  }
  const float total = (s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7 + s8 + s9 + s10 + s11)[0];
  // Uses the sums in a way that never changes the result.
  return 2.0 * kLanes * 12 * static_cast<double>(rounds) + (total != total ? 1.0 : 0.0);
}

namespace {

// 16 KiB with bits like those of data: values from -1 to 1.
struct Operands {
  static constexpr int kFloats = 4096;
  alignas(64) float values[kFloats] = {};
  constexpr Operands() {
    std::uint32_t state = 1;
    for (float& value : values) {
      state = state * 1664525U + 1013904223U;  // Numerical Recipes' generator
      value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F;
    }
  }
};

}  // namespace

// One load for two multiply-adds, as in products of six or eight rows.
double loading_fma_loop(std::int64_t rounds) {
  static constexpr Operands kOperands;
  constexpr int kSums = 12;
  constexpr int kLoads = 24;  // other work of a round takes ports from multiply-adds
  F a = load(kOperands.values);
  F b = load(kOperands.values + kLanes);
  F sum[kSums] = {};
  int at = 0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    const float* from = kOperands.values + at;
    asm volatile(""
                 : "+" PITON_VECTOR_REGISTER(a), "+" PITON_VECTOR_REGISTER(b),
                   "+r"(from));  // one address for all loads
#pragma GCC unroll 24
    for (int i = 0; i < kLoads; ++i) {
      F loaded = load(from + i * kLanes);
      asm volatile("" : "+" PITON_VECTOR_REGISTER(loaded));  // once for both
      sum[2 * i % kSums] += loaded * a;
      sum[(2 * i + 1) % kSums] += loaded * b;
    }
    at = (at + kLoads * kLanes) % (Operands::kFloats / 2);
  }
  F total = {};
  for (const F& one : sum) total += one;
  return 2.0 * kLanes * 2 * kLoads * static_cast<double>(rounds) +
         (total[0] != total[0] ? 1.0 : 0.0);
}

}  // namespace piton::cpu::PITON_ISA
