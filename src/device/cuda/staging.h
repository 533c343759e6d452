// Staging buffers in pinned memory for copies between pageable host memory and a device. Internal
// to this folder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "device/cuda/stream.h"

namespace piton::cuda {

// Copies in pieces through a few pinned buffers, all allocated at first use. Thread-safe; one
// copy at a time. The device must be selected.
class PinnedStaging {
 public:
  PinnedStaging() = default;
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;
  ~PinnedStaging();

  // `host` has been read when it returns; `device` is written in the order of `stream`.
  void upload(const void* host, std::byte* device, std::int64_t bytes, cudaStream_t stream);
  // `host` has been written when it returns.
  void download(const std::byte* device, void* host, std::int64_t bytes, cudaStream_t stream);

 private:
  // A transfer of 4 MiB takes about 80 us at 50 GB/s, far above the 10 us to start one. Four
  // buffers let the host copy while two transfers run.
  static constexpr std::int64_t kBufferBytes = std::int64_t{4} << 20;
  static constexpr int kBuffers = 4;

  struct Buffer {
    std::byte* data = nullptr;
    RecordedEvent free;  // complete if no transfer uses `data`
  };

  void allocate();
  // Returns the next buffer in turn, after waiting until it is free.
  Buffer& next_buffer();

  std::mutex mutex_;
  std::array<Buffer, kBuffers> buffers_;
  int next_ = 0;
};

}  // namespace piton::cuda
