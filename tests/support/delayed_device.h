// A device for tests: an address space of its own, and work that runs late.
//
// Its addresses are reserved and unreadable, so a host pointer that slips into a kernel, or a
// device pointer that slips into host code, faults at once. Its streams run on threads of their own
// and start each piece of work only after a delay drawn from `seed`, so a missing wait reads memory
// that is not written yet (fresh memory is filled with NaN).
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
