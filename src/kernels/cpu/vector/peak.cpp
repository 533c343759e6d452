// Multiply-adds on registers alone.
#include "kernels/cpu/vector/peak.h"

#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {

// Twelve independent sums hide a latency of four cycles at two (narrow) or one (wide) a cycle.
double fma_loop(std::int64_t rounds) {
  constexpr int kSums = 12;
  F sum[kSums];
  for (int i = 0; i < kSums; ++i) sum[i] = splat(1.0F + static_cast<float>(i));
  F a = splat(0.999F);
  F b = splat(0.001F);
  asm volatile("" : "+x"(a), "+x"(b));  // unknown to the compiler
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kSums; ++i) {
      sum[i] = sum[i] * a + b;
      asm volatile("" : "+x"(sum[i]));
    }
  }
  float total = 0;
  for (int i = 0; i < kSums; ++i) total += sum[i][0];
  // The sum is used in a way that never changes the answer.
  return 2.0 * kLanes * kSums * static_cast<double>(rounds) + (total != total ? 1.0 : 0.0);
}

}  // namespace piton::cpu::PITON_ISA
