// Rotation of the pairs of channels of a head in device code (kernels/rotary.h). Internal to this
// folder.
#pragma once

#include "kernels/cuda/vector.cuh"

namespace piton::cuda {

// Whose angles a row has, and which channels of a head are a pair.
template <typename T>
struct RowAngles {
  const std::int32_t* positions;
  const Wide<T>* cosine;  // [positions, half]
  const Wide<T>* sine;
  std::int64_t half;  // pairs of a head
  bool inverse;

  template <int kCount>
  __device__ void load_pairs(std::int64_t row, std::int64_t pair, Numbers<Wide<T>, kCount>& c,
                             Numbers<Wide<T>, kCount>& s) const {
    const std::int64_t angle = std::int64_t{positions[row]} * half + pair;
    c = load<kCount>(cosine + angle);
    s = load<kCount>(sine + angle);
    for (Wide<T>& one : s.at) one = inverse ? -one : one;
  }
};

template <typename S>
__device__ __forceinline__ void rotate_pair(S& first, S& second, S c, S s) {
  const S xi = first;
  const S xj = second;
  first = xi * c - xj * s;
  second = xj * c + xi * s;
}

// Pairs `pair` .. pair + kCount - 1 of the rotated channels `from` of a head, to the same channels
// `to`, which may be the same memory.
template <bool kHalves, int kCount, typename T>
__device__ void rotate_pairs(const RowAngles<T>& angles, std::int64_t row, std::int64_t pair,
                             const T* from, T* to) {
  Numbers<Wide<T>, kCount> c;
  Numbers<Wide<T>, kCount> s;
  angles.load_pairs(row, pair, c, s);
  if constexpr (kHalves || kCount == 1) {
    const std::int64_t first_at = kHalves ? pair : 2 * pair;
    const std::int64_t second_at = kHalves ? angles.half + pair : 2 * pair + 1;
    auto first = load_wide<kCount>(from + first_at);
    auto second = load_wide<kCount>(from + second_at);
    for (int i = 0; i < kCount; ++i) rotate_pair(first.at[i], second.at[i], c.at[i], s.at[i]);
    store_rounded(to + first_at, first);
    store_rounded(to + second_at, second);
  } else {
    auto both = load_wide<2 * kCount>(from + 2 * pair);
    for (int i = 0; i < kCount; ++i)
      rotate_pair(both.at[2 * i], both.at[2 * i + 1], c.at[i], s.at[i]);
    store_rounded(to + 2 * pair, both);
  }
}

}  // namespace piton::cuda
