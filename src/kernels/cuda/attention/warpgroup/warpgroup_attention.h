// Attention on the tensor cores of Hopper (compute capability 9.0), in the warpgroups that only it
// has. Internal to kernels/cuda/attention.
#pragma once

#include "kernels/attention.h"
#include "kernels/cuda/attention/gradient_tensor.cuh"
#include "kernels/cuda/context.h"

namespace piton::cuda {

// Whether the call runs there: 16-bit numbers in heads of at most 128 channels that begin at
// multiples of 16 bytes, scores that are scaled products, and no dropout.
bool runs_on_warpgroups(const AttentionForward& call, const CallContext& context);
void execute_on_warpgroups(const AttentionForward& call, const CallContext& context);

// Write dq; dk and dv: after the terms of queries, for PairForm::kPlain and rows in vectors.
template <typename T, int kChannels>
void launch_query_gradient_of_groups(const AttentionBackward& call, const TensorGrid<T>& grid,
                                     cudaStream_t stream);
template <typename T, int kChannels>
void launch_key_gradient_of_groups(const AttentionBackward& call, const TensorGrid<T>& grid,
                                   cudaStream_t stream);

}  // namespace piton::cuda
