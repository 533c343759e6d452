#include "device/offload_target.h"

#include <cstring>
#include <utility>

#include "device/meta_device.h"

namespace piton {
namespace {

constexpr std::int64_t kTargetSegmentBytes = std::int64_t{1} << 20;

}  // namespace

OffloadTarget::OffloadTarget(std::unique_ptr<Device> own, Device& carrier, Memory& memory)
    : own_(std::move(own)),
      carrier_(&carrier),
      arena_(std::make_unique<Arena>(memory, kTargetSegmentBytes)) {}

std::unique_ptr<OffloadTarget> OffloadTarget::host_memory(Device& device) {
  return std::unique_ptr<OffloadTarget>(new OffloadTarget(nullptr, device, device.host_memory()));
}

std::unique_ptr<OffloadTarget> OffloadTarget::file(Device& device,
                                                   const std::filesystem::path& folder,
                                                   FileFaults faults) {
  std::unique_ptr<Device> own;
  if (device.place().kind == DeviceKind::kMeta) {
    own = std::make_unique<MetaDevice>();
  } else {
    PITON_ASSERT(device.place().kind == DeviceKind::kHost, "a file takes tensors of the host");
    own = std::make_unique<FileDevice>(folder, device.host_memory(), std::move(faults));
  }
  Device& carrier = *own;
  return std::unique_ptr<OffloadTarget>(new OffloadTarget(std::move(own), carrier, carrier));
}

void OffloadTarget::zero_new(const Tensor& dst, Stream& stream) {
  if (dst.place().kind != DeviceKind::kHost) return carrier_->zero_new(dst, stream);
  PITON_ASSERT(dst.contiguous(), "zero of {}", to_string(dst));
  stream.enqueue([data = dst.raw(), bytes = static_cast<std::size_t>(dst.bytes())] {
    std::memset(data, 0, bytes);
  });
}

}  // namespace piton
