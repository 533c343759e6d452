// The processor's tiles. Included by files of this folder only: they are compiled for AMX.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace piton::cpu::amx {

struct HardwareTiles {
  template <int tile>
  static inline __attribute__((always_inline)) void zero() {
    if constexpr (tile == 0) _tile_zero(0);
    if constexpr (tile == 1) _tile_zero(1);
    if constexpr (tile == 2) _tile_zero(2);
    if constexpr (tile == 3) _tile_zero(3);
  }
  template <int tile>
  static inline __attribute__((always_inline)) void load(const void* from, std::int64_t stride) {
    if constexpr (tile == 0) _tile_loadd(0, from, stride);
    if constexpr (tile == 1) _tile_loadd(1, from, stride);
    if constexpr (tile == 2) _tile_loadd(2, from, stride);
    if constexpr (tile == 3) _tile_loadd(3, from, stride);
    if constexpr (tile == 4) _tile_loadd(4, from, stride);
    if constexpr (tile == 5) _tile_loadd(5, from, stride);
    if constexpr (tile == 6) _tile_loadd(6, from, stride);
    if constexpr (tile == 7) _tile_loadd(7, from, stride);
  }
  template <int tile>
  static inline __attribute__((always_inline)) void store(void* to, std::int64_t stride) {
    if constexpr (tile == 0) _tile_stored(0, to, stride);
    if constexpr (tile == 1) _tile_stored(1, to, stride);
    if constexpr (tile == 2) _tile_stored(2, to, stride);
    if constexpr (tile == 3) _tile_stored(3, to, stride);
  }
  template <int accumulator>
  static inline __attribute__((always_inline)) void dot() {
    if constexpr (accumulator == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (accumulator == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (accumulator == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (accumulator == 3) _tile_dpbf16ps(3, 5, 7);
  }
  static inline __attribute__((always_inline)) void bring(const void* at) {
    _mm_prefetch(at, _MM_HINT_T1);
  }
  static inline __attribute__((always_inline)) void bring_to_write(const void* at) {
    __builtin_prefetch(at, 1, 2);
  }
  // The compiler does not know that tile loads read memory.
  static inline __attribute__((always_inline)) void fence() { asm volatile("" ::: "memory"); }
};

}  // namespace piton::cpu::amx
