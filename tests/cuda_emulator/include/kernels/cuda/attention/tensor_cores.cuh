// In place of src/kernels/cuda/attention/tensor_cores.cuh, whose comments say who holds what: the
// lanes of a warp exchange their parts.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cuda_emulator/tensor_cores.h"

namespace piton::cuda {

template <typename T>
void multiply_fragments(float (&sums)[4], const std::uint32_t (&left)[4],
                        const std::uint32_t* right) {
  static_assert(sizeof(T) == 2);
  emulator::multiply_fragments(std::is_same_v<T, __half>, sums, left, right);
}

template <bool kTransposed, typename T>
void load_matrices(std::uint32_t (&pairs)[4], const T* row) {
  static_assert(sizeof(T) == 2);
  const T* rows[emulator::kWarpSize];
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    emulator::fail("a row of a matrix that is not aligned to 16 bytes");
  emulator::gather(0xFFFFFFFFU, &row, sizeof row, rows);
  const int g = emulator::lane() / 4;
  const int p = emulator::lane() % 4;
  for (int i = 0; i < 4; ++i) {
    T pair[2];
    for (int j = 0; j < 2; ++j) {
      pair[j] = kTransposed ? rows[8 * i + 2 * p + j][g] : rows[8 * i + g][2 * p + j];
    }
    __builtin_memcpy(&pairs[i], pair, sizeof pair);
  }
}

template <typename T>
std::uint32_t rounded_pair(float low, float high) {
  T pair[2];
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    pair[0] = __float2bfloat16_rn(low);
    pair[1] = __float2bfloat16_rn(high);
  } else {
    static_assert(std::is_same_v<T, __half>);
    pair[0] = __float2half_rn(low);
    pair[1] = __float2half_rn(high);
  }
  std::uint32_t both = 0;
  __builtin_memcpy(&both, pair, sizeof both);
  return both;
}

inline float power_of_two(float x) { return exp2f(x); }

}  // namespace piton::cuda
