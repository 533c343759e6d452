// Addresses count upwards and are never reused.
#include "device/meta_device.h"

#include <cstring>

#include "base/error.h"

namespace piton {
namespace {

class MetaStream final : public Stream {
 public:
  Event record() override { return {}; }
  void enqueue(std::function<void()> work) override { work(); }

 private:
  // Of transfers that take simulated time; all others are complete.
  void follow(const Event& event) override { event.wait(); }
};

}  // namespace

std::byte* MetaDevice::allocate(std::int64_t bytes) {
  const std::int64_t address = next_;
  next_ += (bytes + 4095) / 4096 * 4096;
  return reinterpret_cast<std::byte*>(address);
}

void MetaDevice::release(std::byte*, std::int64_t) {}

std::unique_ptr<Stream> MetaDevice::make_stream() { return std::make_unique<MetaStream>(); }

void MetaDevice::upload(const void*, const Tensor& dst, Stream&) {
  PITON_ASSERT(dst.contiguous(), "upload to {}", to_string(dst));
}

void MetaDevice::download(const Tensor& src, void* host, Stream&) {
  PITON_ASSERT(src.contiguous(), "download of {}", to_string(src));
  if (src.bytes() > 0) std::memset(host, 0, static_cast<std::size_t>(src.bytes()));
}

void MetaDevice::copy(const Tensor& dst, const Tensor& src, Stream&) { check_copy(dst, src); }

void MetaDevice::zero(const Tensor& dst, Stream&) {
  PITON_ASSERT(dst.contiguous(), "zero of {}", to_string(dst));
}

std::byte* MetaDevice::host_address(const Tensor&) const { return nullptr; }

}  // namespace piton
