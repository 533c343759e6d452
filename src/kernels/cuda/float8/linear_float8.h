// Linears in FP8 (linear_float8.cu). Internal to this folder.
#pragma once

#include "kernels/cuda/context.h"
#include "kernels/linear.h"

namespace piton::cuda {

// Calls of at least one row.
void multiply_in_float8(const LinearForward& call, const CallContext& context);
void multiply_in_float8(const LinearBackwardInput& call, const CallContext& context);
void add_in_float8(const LinearBackwardWeight& call, const CallContext& context);  // not to dbias

}  // namespace piton::cuda
