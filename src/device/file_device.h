// A file as a device: memory for tensors that are seldom needed.
//
// Its addresses are places in the file; nothing can dereference them, and no kernel runs on it. Its
// streams each have a thread, so copies to and from host memory run while the host computes. The
// file has no name: the system frees it when the process ends, in whatever way.
//
// Space is reserved when it is allocated, so a full disk is found then and not in the middle of a
// step (unless the file system cannot reserve). If a read or write fails, what was enqueued on that
// stream is dropped, and waiting for it throws Error(kData) with the folder and the reason.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "device/device.h"

namespace piton {

// For tests. `call`: "create", "reserve", "read", "write". Returns the errno value with which the
// call shall fail, or 0.
using FileFaults = std::function<int(std::string_view call)>;

class FileDevice final : public Device {
 public:
  // In `folder`, which is created if it is missing. `host_memory` is that of the device whose
  // tensors come here. Throws Error(kData).
  FileDevice(const std::filesystem::path& folder, Memory& host_memory, FileFaults faults = {});
  ~FileDevice() override;

  std::byte* allocate(std::int64_t bytes) override;  // throws Error(kData) if the disk is full
  void release(std::byte* data, std::int64_t bytes) override;
  Place place() const override { return {DeviceKind::kFile, 0}; }
  std::string name() const override;
  std::unique_ptr<Stream> make_stream() override;
  // These two wait for the stream and return when the bytes are there.
  void upload(const void* host, const Tensor& dst, Stream& stream) override;
  void download(const Tensor& src, void* host, Stream& stream) override;
  void zero(const Tensor& dst, Stream& stream) override;
  void zero_new(const Tensor& dst, Stream& stream) override;
  // One of the two is in the file, the other in host memory.
  void copy(const Tensor& dst, const Tensor& src, Stream& stream) override;
  Memory& host_memory() override { return host_memory_; }
  std::byte* host_address(const Tensor&) const override { return nullptr; }

 private:
  class File;
  std::shared_ptr<File> file_;  // streams share it
  Memory& host_memory_;
};

}  // namespace piton
