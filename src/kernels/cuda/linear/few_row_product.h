// y = x W^T of a few rows, as in decoding. Its time is that of reading W once; the library's
// algorithms for many rows would use an eighth of a GPU. Internal to this folder.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/linear/linear_parts.h"
#include "kernels/linear.h"

namespace piton::cuda {

inline constexpr std::int64_t kFewRows = 16;

// Whether multiply_few_rows() takes the call: 16-bit numbers, at most kFewRows rows, and rows of x
// and W that begin at multiples of 16 bytes and are as many bytes long. Of codes: groups of a
// multiple of 8 columns.
bool has_few_rows(const LinearForward& call);
bool has_few_rows(const GatedLinear& call);

// Enqueues the whole call, with its end: a block of a gated linear has the gates of 8 outputs and
// what they multiply. The order of the sums depends only on the width of x, so a row has the same
// bits next to any other rows, but not those of a product of many rows.
void multiply_few_rows(const LinearForward& call, cudaStream_t stream);
void multiply_few_rows(const GatedLinear& call, cudaStream_t stream);

// The call and others like it, of which it is the first; without bias, residual and activation, and
// with y of the dtype of x. `parts.right` is in rows of W.
void multiply_few_rows(const LinearForward& call, const ProductParts& parts, cudaStream_t stream);

}  // namespace piton::cuda
