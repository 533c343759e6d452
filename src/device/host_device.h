// The processor as a device: aligned memory from the system, streams that run inline.
#pragma once

#include <atomic>

#include "base/threads.h"
#include "device/device.h"

namespace piton {

class HostDevice final : public Device {
 public:
  // Refuses allocations beyond `limit_bytes` with Error(kMemory); 0: the machine's own limit.
  explicit HostDevice(std::string description = "host", std::int64_t limit_bytes = 0);

  // From now on all threads of the pool zero large tensors. The pool must outlive the last such
  // call.
  void share_work(ThreadPool& threads) { threads_ = &threads; }

  std::byte* allocate(std::int64_t bytes) override;
  void release(std::byte* data, std::int64_t bytes) override;
  Place place() const override { return {DeviceKind::kHost, 0}; }
  std::string name() const override { return description_; }
  std::unique_ptr<Stream> make_stream() override;
  void upload(const void* host, const Tensor& dst, Stream& stream) override;
  void download(const Tensor& src, void* host, Stream& stream) override;
  void zero(const Tensor& dst, Stream& stream) override;
  void zero_new(const Tensor& dst, Stream& stream) override;
  void copy(const Tensor& dst, const Tensor& src, Stream& stream) override;
  Memory& host_memory() override { return *this; }
  std::byte* host_address(const Tensor& tensor) const override { return tensor.raw(); }

 private:
  void clear(std::byte* data, std::int64_t bytes);

  std::string description_;
  ThreadPool* threads_ = nullptr;
  std::int64_t limit_bytes_;
  std::atomic<std::int64_t> allocated_bytes_ = 0;
};

}  // namespace piton
