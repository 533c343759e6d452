// A product of one warp by kernels/cuda/attention/tensor_cores.cuh.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

namespace piton::emulator {

enum class Reading {
  kByElement,       // each lane reads the elements that the PTX ISA gives it
  kByMatrices,      // load_matrices() of the left and of the transposed right
  kByTransposed,    // load_matrices(), transposed, of the right as it is
  kByMatricesAside  // as kByMatrices, from rows that are not aligned
};

// d [16, 8] = a [16, 16] b [16, 8], all row-major.
void multiply(Reading reading, const __nv_bfloat16* a, const __nv_bfloat16* b, float* d);

}  // namespace piton::emulator
