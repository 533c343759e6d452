// Attention on the tensor cores of Hopper (compute capability 9.0), in the warpgroups that only it
// has: of rows in vectors, with scores that are scaled products and without dropout. Internal to
// kernels/cuda/attention.
#pragma once

#include "kernels/cuda/attention/forward_grid.cuh"
#include "kernels/cuda/attention/gradient_tensor.cuh"

namespace piton::cuda {

template <typename T, int kChannels>
void launch_forward_of_groups(const AttentionForward& call, const ForwardGrid<T>& grid,
                              cudaStream_t stream);

// Write dq; dk and dv, after the terms of queries.
template <typename T, int kChannels>
void launch_query_gradient_of_groups(const AttentionBackward& call, const TensorGrid<T>& grid,
                                     cudaStream_t stream);
template <typename T, int kChannels>
void launch_key_gradient_of_groups(const AttentionBackward& call, const TensorGrid<T>& grid,
                                   cudaStream_t stream);

}  // namespace piton::cuda
