// Element types in device code: the type of each dtype, widening and rounding. Internal to this
// folder.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "base/error.h"
#include "tensor/tensor.h"

namespace piton::cuda {

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

// use(std::type_identity<X>, std::type_identity<T>) with the types of a residual stream and of the
// rest of a call: the same, or fp32 next to 16 bits.
template <typename Use>
void with_stream(DType stream, DType rest, Use use) {
  with_floating(rest, [&]<typename T>(std::type_identity<T> type) {
    if constexpr (sizeof(T) == 2) {
      if (stream == DType::kF32) return use(std::type_identity<float>{}, type);
    }
    PITON_ASSERT(stream == rest, "cuda: {} next to {}", name(stream), name(rest));
    use(type, type);
  });
}

// use(std::type_identity<S>) with a type of sums: fp32 or fp64.
template <typename Use>
void with_sums(DType dtype, Use use) {
  if (dtype == DType::kF64) return use(std::type_identity<double>{});
  PITON_ASSERT(dtype == DType::kF32, "cuda: {} is no type of sums", name(dtype));
  use(std::type_identity<float>{});
}

// The address of a tensor's first element; nullptr for an empty tensor.
template <typename T>
T* pointer(const Tensor& tensor) {
  return tensor.defined() ? reinterpret_cast<T*>(tensor.raw()) : nullptr;
}

// A matrix [n, f] whose rows may have gaps.
template <typename T>
struct StridedRows {
  T* data;
  std::int64_t stride;
  __device__ T& at(std::int64_t row, std::int64_t i) const { return data[row * stride + i]; }
};

template <typename T>
StridedRows<T> strided_rows(const Tensor& tensor) {
  return {pointer<T>(tensor), tensor.defined() ? tensor.stride(0) : 0};
}

// The type of arithmetic for elements of type T.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }

// Rounds to nearest even; to 16 bits through fp32, as on the host.
template <typename To, typename From>
__device__ __forceinline__ To narrow(From x) {
  if constexpr (std::is_same_v<To, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, __half>) {
    return __float2half_rn(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace piton::cuda
