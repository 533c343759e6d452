// The bits of fp32 numbers. Internal to this folder.
#pragma once

#include <cuda_runtime.h>

#include <cstring>

namespace piton::cuda {

__device__ __forceinline__ unsigned bits_of(float x) {
  unsigned bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

__device__ __forceinline__ float float_of(unsigned bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace piton::cuda
