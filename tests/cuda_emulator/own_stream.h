// A stream for one launch: on none, nothing is launched (kernels/cuda/launch.cuh).
#pragma once

#include <cuda_runtime_api.h>

namespace piton::emulator {

class OwnStream {
 public:
  OwnStream() { cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  cudaStream_t handle() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace piton::emulator
