// Element types in device code: the type of each dtype, widening and rounding; also the number of
// blocks of a loop over elements. Internal to this folder.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/error.h"
#include "tensor/dtype.h"

namespace piton::cuda {

inline constexpr int kThreads = 256;  // per block

// Blocks for a grid-stride loop over `items`: enough to fill any GPU, and below the maximum size of
// a grid.
inline unsigned blocks_for(std::int64_t items, std::int64_t items_per_block) {
  return static_cast<unsigned>(std::min<std::int64_t>(
      (items + items_per_block - 1) / items_per_block, std::int64_t{1} << 20));
}

// use(std::type_identity<T>) with the device type of a floating dtype.
template <typename Use>
void with_floating(DType dtype, Use use) {
  switch (dtype) {
    case DType::kF64:
      return use(std::type_identity<double>{});
    case DType::kF32:
      return use(std::type_identity<float>{});
    case DType::kBF16:
      return use(std::type_identity<__nv_bfloat16>{});
    case DType::kF16:
      return use(std::type_identity<__half>{});
    default:
      PITON_ASSERT(false, "cuda: {} is no floating type", name(dtype));
  }
}

// The type of arithmetic for elements of type T.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ inline double widen(double x) { return x; }
__device__ inline float widen(float x) { return x; }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float widen(__half x) { return __half2float(x); }

// Rounds to nearest even; to 16 bits through fp32, as on the host.
template <typename To, typename From>
__device__ To narrow(From x) {
  if constexpr (std::is_same_v<To, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, __half>) {
    return __float2half_rn(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace piton::cuda
