// CUDA's half precision, on the host (tests/cuda_emulator).
#pragma once

#include "tensor/dtype.h"

struct __half {
  piton::Float16 value;
};

inline float __half2float(__half x) { return piton::to_float(x.value); }
inline __half __float2half_rn(float x) { return {piton::to_float16(x)}; }
