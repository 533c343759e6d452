// CUDA's bfloat16, on the host (tests/cuda_emulator).
#pragma once

#include "tensor/dtype.h"

struct __nv_bfloat16 {
  piton::BFloat16 value;
};

inline float __bfloat162float(__nv_bfloat16 x) { return piton::to_float(x.value); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {piton::to_bfloat16(x)}; }
