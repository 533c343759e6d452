// Vectors of fp32 as wide as the instruction set allows, with loads and stores of all storage
// types.
//
// Everything here is in the namespace of one instruction set and inlined, so that the linker cannot
// pick a symbol compiled for a wide set for use in a narrow one. For the same reason, files in this
// folder include no header that defines inline functions outside of that namespace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/vector/table.h"

#define PITON_INLINE static inline __attribute__((always_inline))

namespace piton::cpu::PITON_ISA {

constexpr int kLanes = PITON_VECTOR_BYTES / 4;

typedef float F __attribute__((vector_size(PITON_VECTOR_BYTES)));
typedef std::int32_t I __attribute__((vector_size(PITON_VECTOR_BYTES)));
typedef std::uint32_t U __attribute__((vector_size(PITON_VECTOR_BYTES)));
typedef std::uint16_t H __attribute__((vector_size(PITON_VECTOR_BYTES / 2)));

// Storage types: bits only.
struct Bf16 {
  std::uint16_t bits;
};
struct Half {
  std::uint16_t bits;
};

// x - 0 is x, also for -0: one broadcast and no addition.
PITON_INLINE F splat(float x) { return x - F{}; }
PITON_INLINE U splat_u(std::uint32_t x) { return U{} + x; }
PITON_INLINE I splat_i(std::int32_t x) { return I{} + x; }
PITON_INLINE F max(F a, F b) { return a > b ? a : b; }
PITON_INLINE F min(F a, F b) { return a < b ? a : b; }
PITON_INLINE F abs(F x) { return (F)((U)x & 0x7FFFFFFFU); }

template <typename V>
PITON_INLINE V load_bits(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

}  // namespace piton::cpu::PITON_ISA

// Of the processor, lanes_x86.h or lanes_neon.h:
//   add_product   sum + a b, fused if the set has that; for register tiles
//   widen_words   16-bit words as U; widen_bytes: signed bytes as I
//   kRegisters    of vectors
//   PITON_VECTOR_REGISTER   the letter of a vector register in inline assembly
#include PITON_LANES

namespace piton::cpu::PITON_ISA {

PITON_INLINE F widen_bf16(H h) { return (F)(widen_words(h) << 16); }

// Rounds to nearest even; NaN stays NaN.
PITON_INLINE H narrow_bf16(F x) {
  const U bits = (U)x;
  const U rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const U quiet = (bits >> 16) | 0x40U;
  const U result = x != x ? quiet : rounded;
  return __builtin_convertvector(result, H);
}

// Exact: one multiplication by 2^112 moves the exponent into fp32's range.
PITON_INLINE F widen_half(H h) {
  const U bits = widen_words(h);
  const U magnitude = (bits & 0x7FFFU) << 13;
  const F scaled = (F)magnitude * splat(0x1p112F);
  const U special = magnitude >= splat_u(0x7C00U << 13) ? (magnitude | 0x7F800000U) : (U)scaled;
  return (F)(special | ((bits & 0x8000U) << 16));
}

// Rounds to nearest even, beyond 65504 + half a step to infinity; subnormals are kept; NaN stays
// NaN.
PITON_INLINE H narrow_half(F x) {
  const U bits = (U)x;
  const U sign = (bits >> 16) & 0x8000U;
  const U magnitude = bits & 0x7FFFFFFFU;
  // Normal results: round the mantissa at bit 13, then move the exponent by 112.
  const U rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  const U normal = (rounded - (112U << 23)) >> 13;
  // Subnormal results: adding 0.5 puts the last place of a half subnormal at the last mantissa bit.
  const U small = (U)((F)magnitude + splat(0.5F)) - 0x3F000000U;
  U result = magnitude < splat_u(113U << 23) ? small : normal;
  result = magnitude >= splat_u(0x477FF000U) ? splat_u(0x7C00U) : result;
  result = magnitude > splat_u(0x7F800000U) ? splat_u(0x7E00U) : result;
  return __builtin_convertvector(result | sign, H);
}

PITON_INLINE F load(const float* p) { return load_bits<F>(p); }
PITON_INLINE F load(const Bf16* p) { return widen_bf16(load_bits<H>(p)); }
PITON_INLINE F load(const Half* p) { return widen_half(load_bits<H>(p)); }
PITON_INLINE void store(float* p, F x) { __builtin_memcpy(p, &x, sizeof x); }
PITON_INLINE void store(Bf16* p, F x) {
  const H h = narrow_bf16(x);
  __builtin_memcpy(p, &h, sizeof h);
}
PITON_INLINE void store(Half* p, F x) {
  const H h = narrow_half(x);
  __builtin_memcpy(p, &h, sizeof h);
}

// The first `count` lanes; the others load as 0 and are not stored.
template <typename T>
PITON_INLINE F load(const T* p, int count) {
  T lanes[kLanes] = {};
  __builtin_memcpy(lanes, p, static_cast<std::size_t>(count) * sizeof(T));
  return load(lanes);
}
template <typename T>
PITON_INLINE void store(T* p, F x, int count) {
  T lanes[kLanes];
  store(lanes, x);
  __builtin_memcpy(p, lanes, static_cast<std::size_t>(count) * sizeof(T));
}

// Counts of lanes: all lanes, known at compile time, or some of them at the end of a row.
struct Full {};
template <typename T>
PITON_INLINE F load(const T* p, Full) {
  return load(p);
}
template <typename T>
PITON_INLINE void store(T* p, F x, Full) {
  store(p, x);
}

PITON_INLINE F lane_numbers() {
  F x;
  for (int i = 0; i < kLanes; ++i) x[i] = static_cast<float>(i);
  return x;
}
PITON_INLINE I lane_indices() {
  I x;
  for (int i = 0; i < kLanes; ++i) x[i] = i;
  return x;
}

// x in the lanes below count, `other` in the rest.
PITON_INLINE F first_lanes(F x, Full, float) { return x; }
PITON_INLINE F first_lanes(F x, int count, float other) {
  return lane_indices() < splat_i(count) ? x : splat(other);
}

// body(i, Full or count) for i = 0, kLanes, ... below n.
template <typename Body>
PITON_INLINE void for_vectors(std::int64_t n, Body body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Full{});
  if (i < n) body(i, static_cast<int>(n - i));
}

// Sums and maxima over lanes, by halves: the order is fixed.
PITON_INLINE float sum_lanes(F x) {
  float lanes[kLanes];
  store(lanes, x);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}
PITON_INLINE float max_lanes(F x) {
  float lanes[kLanes];
  store(lanes, x);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i)
      lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
  }
  return lanes[0];
}

// call(T{}) with the storage type.
template <typename Call>
PITON_INLINE void with_type(Type type, Call call) {
  switch (type) {
    case Type::kF32:
      return call(float{});
    case Type::kBF16:
      return call(Bf16{});
    case Type::kF16:
      return call(Half{});
  }
}

}  // namespace piton::cpu::PITON_ISA
