// The calls that this back end implements. Each enqueues work on `stream` of the selected device
// and returns. To add a call, add a function here; kernels.cpp refuses calls without one.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/elementwise.h"
#include "kernels/norm.h"

namespace piton::cuda {

void execute(const Copy& call, cudaStream_t stream);
void execute(const Add& call, cudaStream_t stream);
void execute(const NormForward& call, cudaStream_t stream);

}  // namespace piton::cuda
