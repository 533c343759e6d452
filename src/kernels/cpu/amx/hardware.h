// The processor's tiles. Included by files of this folder only: they are compiled for AMX.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace piton::cpu::amx {

// Inline assembly: intrinsics take no template parameter as a tile.
struct HardwareTiles {
  template <int tile>
  static inline __attribute__((always_inline)) void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  template <int tile>
  static inline __attribute__((always_inline)) void load(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%1, %2, 1), %%tmm%c0" : : "i"(tile), "r"(from), "r"(stride));
  }
  template <int tile>
  static inline __attribute__((always_inline)) void store(void* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1, %2, 1)" : : "i"(tile), "r"(to), "r"(stride));
  }
  // sums += left right
  template <int sums, int left, int right>
  static inline __attribute__((always_inline)) void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(left), "i"(right));
  }
  // Prefetches to the second-level cache. Some compilers drop their own prefetch, because it has no
  // result.
  static inline __attribute__((always_inline)) void bring(const void* at) {
    asm volatile("prefetcht1 (%0)" : : "r"(at));
  }
  // To be called between tile instructions and other uses of the same memory: the compiler does not
  // know what tile instructions read and write.
  static inline __attribute__((always_inline)) void fence() { asm volatile("" : : : "memory"); }
};

}  // namespace piton::cpu::amx
