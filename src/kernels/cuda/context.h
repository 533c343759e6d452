// What a call is enqueued with. Internal to this folder.
#pragma once

#include <cuda_runtime_api.h>

namespace piton::cuda {

class Products;

struct CallContext {
  cudaStream_t stream;
  Products& products;  // matrix products of the library (product.h)
};

}  // namespace piton::cuda
