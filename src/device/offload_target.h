// Memory to which tensors of a device go while they are not needed: host memory next to the device,
// or a file.
#pragma once

#include <filesystem>
#include <memory>

#include "device/file_device.h"

namespace piton {

class OffloadTarget {
 public:
  // Host memory that `device` accesses directly. Of no use to the host itself.
  static std::unique_ptr<OffloadTarget> host_memory(Device& device);
  // A file in `folder`. Only for tensors of the host (and of a device without memory, which gets no
  // file but the same counts). Throws Error(kData).
  static std::unique_ptr<OffloadTarget> file(Device& device, const std::filesystem::path& folder,
                                             FileFaults faults = {});

  // Copies between the device and the target, on streams that it makes itself.
  Device& carrier() { return *carrier_; }
  // Of the target.
  Arena& arena() { return *arena_; }
  std::int64_t peak_bytes() const { return arena_->counts().peak_total_bytes; }
  // Zeroes a tensor of the target that was never written, in the order of a stream of the device.
  void zero_new(const Tensor& dst, Stream& stream);

 private:
  OffloadTarget(std::unique_ptr<Device> own, Device& carrier, Memory& memory);

  std::unique_ptr<Device> own_;  // the file
  Device* carrier_;
  std::unique_ptr<Arena> arena_;
};

}  // namespace piton
