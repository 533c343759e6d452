// Memory for the time of one call, ordered on a stream. Internal to this folder.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <utility>

#include "device/cuda/check.h"
#include "tensor/tensor.h"

namespace piton::cuda {

// A tensor that later work on `stream` may use. Its memory returns to the pool of the device after
// the work that was enqueued before the last copy of the tensor is destroyed.
inline Tensor scratch(DType dtype, const Shape& shape, Place place, cudaStream_t stream) {
  class ScratchStorage final : public Storage {
   public:
    ScratchStorage(std::byte* data, std::int64_t bytes, Place where, cudaStream_t stream)
        : Storage(data, bytes, where), stream_(stream) {}
    ~ScratchStorage() override {
      if (cudaFreeAsync(data(), stream_) != cudaSuccess) cudaGetLastError();
    }

   private:
    cudaStream_t stream_;
  };
  const std::int64_t bytes = shape.elements() * size_bytes(dtype);
  void* data = nullptr;
  check(cudaMallocAsync(&data, static_cast<std::size_t>(bytes), stream), "allocation of scratch",
        bytes);
  return Tensor(
      std::make_shared<ScratchStorage>(static_cast<std::byte*>(data), bytes, place, stream), 0,
      dtype, shape);
}

}  // namespace piton::cuda
