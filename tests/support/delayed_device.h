// A device for tests with a separate address space and delayed work.
//
// Its addresses are reserved and not readable, so a host pointer in a kernel, or a device pointer
// in host code, faults at once. Each stream runs on its own thread and starts each piece of work
// after a delay drawn from `seed`, so code with a missing wait reads memory that is not written yet
// (new memory is filled with NaN).
#pragma once

#include <cstdint>
#include <memory>

#include "device/device.h"

namespace piton {

class DelayedDevice final : public Device {
 public:
  explicit DelayedDevice(std::uint64_t seed, int max_delay_us = 200,
                         std::int64_t address_space_bytes = std::int64_t{1} << 30);
  ~DelayedDevice() override;

  std::byte* allocate(std::int64_t bytes) override;
  void release(std::byte* data, std::int64_t bytes) override;
  Place place() const override { return {DeviceKind::kDelayed, 0}; }
  std::string name() const override { return "delayed test device"; }
  std::unique_ptr<Stream> make_stream() override;
  void upload(const void* host, const Tensor& dst, Stream& stream) override;
  void download(const Tensor& src, void* host, Stream& stream) override;
  void zero(const Tensor& dst, Stream& stream) override;
  void copy(const Tensor& dst, const Tensor& src, Stream& stream) override;
  Memory& host_memory() override;
  std::byte* host_address(const Tensor& tensor) const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton
