// What a call is enqueued with. Internal to this folder.
#pragma once

#include <cuda_runtime_api.h>

namespace piton {
class Arena;
class MemoryUser;
}  // namespace piton

namespace piton::cuda {

class Products;

struct CallContext {
  // null: the call takes its scratch and enqueues nothing. So the scratch of a call is counted
  // (Kernels::workspace_bytes) by the code that takes it.
  cudaStream_t stream;
  Products& products;  // matrix products of the library (product.h)
  Arena& workspace;    // has the memory of scratch()
  MemoryUser* user;    // the stream as a user of `workspace`; null with it
  bool warpgroups;     // whether the device has the products of warpgroups

  bool only_counts() const { return stream == nullptr; }
};

}  // namespace piton::cuda
