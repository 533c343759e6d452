// Copies pieces through the buffers in turn; a piece waits for the previous transfer of its buffer.
#include "device/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "device/cuda/check.h"

namespace piton::cuda {

PinnedStaging::~PinnedStaging() {
  for (Buffer& buffer : buffers_) {
    if (buffer.data == nullptr) continue;
    cudaEventSynchronize(buffer.free.handle());
    cudaFreeHost(buffer.data);
  }
}

// All at once: an allocation waits for the kernels that run, and later one of them may be a receive
// whose sender waits for this rank.
void PinnedStaging::allocate() {
  for (Buffer& buffer : buffers_) {
    if (buffer.data != nullptr) continue;  // the last call failed at a later one
    void* data = nullptr;
    check(cudaHostAlloc(&data, kBufferBytes, cudaHostAllocDefault),
          "allocation of pinned host memory", kBufferBytes);
    buffer.data = static_cast<std::byte*>(data);
  }
}

PinnedStaging::Buffer& PinnedStaging::next_buffer() {
  if (buffers_.back().data == nullptr) allocate();
  Buffer& buffer = buffers_[static_cast<std::size_t>(next_)];
  next_ = (next_ + 1) % kBuffers;
  buffer.free.wait();
  return buffer;
}

void PinnedStaging::upload(const void* host, std::byte* device, std::int64_t bytes,
                           cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  const auto* from = static_cast<const std::byte*>(host);
  for (std::int64_t done = 0; done < bytes; done += kBufferBytes) {
    const auto size = static_cast<std::size_t>(std::min(kBufferBytes, bytes - done));
    Buffer& buffer = next_buffer();
    std::memcpy(buffer.data, from + done, size);
    check(cudaMemcpyAsync(device + done, buffer.data, size, cudaMemcpyHostToDevice, stream),
          "upload");
    buffer.free.record(stream);
  }
}

void PinnedStaging::download(const std::byte* device, void* host, std::int64_t bytes,
                             cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  auto* to = static_cast<std::byte*>(host);
  Buffer* before = nullptr;  // the buffer whose piece goes to `to` next
  std::size_t before_size = 0;
  const auto take_out = [&] {
    if (before == nullptr) return;
    before->free.wait();
    std::memcpy(to, before->data, before_size);
    to += before_size;
  };
  for (std::int64_t done = 0; done < bytes; done += kBufferBytes) {
    const auto size = static_cast<std::size_t>(std::min(kBufferBytes, bytes - done));
    Buffer& buffer = next_buffer();
    check(cudaMemcpyAsync(buffer.data, device + done, size, cudaMemcpyDeviceToHost, stream),
          "download");
    buffer.free.record(stream);
    take_out();
    before = &buffer;
    before_size = size;
  }
  take_out();
}

}  // namespace piton::cuda
