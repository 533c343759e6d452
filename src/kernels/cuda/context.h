// What a call is enqueued with. Internal to this folder.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace piton {
class Arena;
class MemoryUser;
}  // namespace piton

namespace piton::cuda {

class Products;

// Counters of arrivals that a launch may use.
inline constexpr std::int64_t kArrivals = 1 << 14;

struct CallContext {
  // null: the call takes its scratch and enqueues nothing. So the scratch of a call is counted
  // (Kernels::workspace_bytes) by the code that takes it.
  cudaStream_t stream;
  Products& products;  // matrix products of the library (product.h)
  Arena& workspace;    // has the memory of scratch()
  MemoryUser* user;    // the stream as a user of `workspace`; null with it
  bool warpgroups;     // whether the device has the products of warpgroups
  // [kArrivals], zeros between the launches of a stream (attention/arrivals.cuh). One launch at a
  // time uses them, so calls that do are on one stream. null with `stream`.
  unsigned* arrivals;

  bool only_counts() const { return stream == nullptr; }
};

}  // namespace piton::cuda
