// A device without memory: addresses are numbers, copies do nothing. With kernels/meta it runs real
// model code to count parameters, bytes and FLOPs (`plan`, `inspect`).
#pragma once

#include "device/device.h"

namespace piton {

class MetaDevice final : public Device {
 public:
  std::byte* allocate(std::int64_t bytes) override;
  void release(std::byte* data, std::int64_t bytes) override;
  Place place() const override { return {DeviceKind::kMeta, 0}; }
  std::string name() const override { return "meta"; }
  std::unique_ptr<Stream> make_stream() override;
  void upload(const void* host, const Tensor& dst, Stream& stream) override;
  void download(const Tensor& src, void* host, Stream& stream) override;  // fills with zeros
  void zero(const Tensor& dst, Stream& stream) override;
  void copy(const Tensor& dst, const Tensor& src, Stream& stream) override;
  Memory& host_memory() override { return *this; }
  std::byte* host_address(const Tensor& tensor) const override;  // nullptr

 private:
  std::int64_t next_ = 1 << 20;
};

}  // namespace piton
