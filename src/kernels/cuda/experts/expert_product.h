// Linears of several experts (kernels/linear.h, `first_rows`). Internal to this folder.
#pragma once

#include "kernels/cuda/context.h"
#include "kernels/linear.h"

namespace piton::cuda {

// The weight has plain rows, and both matrices of a product have one dtype. No dim but the number
// of rows is 0.
void multiply_experts(const LinearForward& call, const CallContext& context);
void multiply_experts(const LinearBackwardInput& call, const CallContext& context);
void multiply_experts(const LinearBackwardWeight& call, const CallContext& context);

}  // namespace piton::cuda
