// Memory from the system's allocator; enqueued work runs at once on the calling thread.
#include "device/host_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/huge_pages.h"

namespace piton {
namespace {

// Enqueued work is done when the call returns, so every event is complete.
class InlineStream final : public Stream {
 public:
  Event record() override { return {}; }
  void enqueue(std::function<void()> work) override { work(); }

 private:
  void follow(const Event& event) override { event.wait(); }
};

// Bytes that one part of the thread pool clears: whole huge pages if the tensor begins at one.
constexpr std::int64_t kClearPart = kHugePage;

std::int64_t machine_memory_bytes() {
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

}  // namespace

HostDevice::HostDevice(std::string description, std::int64_t limit_bytes)
    : description_(std::move(description)),
      limit_bytes_(limit_bytes > 0 ? limit_bytes : machine_memory_bytes()) {}

std::byte* HostDevice::allocate(std::int64_t bytes) {
  std::byte* data = nullptr;
  if (allocated_bytes_.fetch_add(bytes) + bytes <= limit_bytes_) {
    data = allocate_in_huge_pages(bytes);
  }
  if (data == nullptr) {
    const std::int64_t before = allocated_bytes_.fetch_sub(bytes) - bytes;
    throw Error(Fault::kMemory,
                "host: out of memory: {} bytes asked, {} of {} in use; use smaller micro-batches, "
                "recomputation, or more ranks",
                bytes, before, limit_bytes_);
  }
  return data;
}

void HostDevice::release(std::byte* data, std::int64_t bytes) {
  allocated_bytes_.fetch_sub(bytes);
  std::free(data);
}

std::unique_ptr<Stream> HostDevice::make_stream() { return std::make_unique<InlineStream>(); }

void HostDevice::upload(const void* host, const Tensor& dst, Stream& stream) {
  PITON_ASSERT(dst.contiguous(), "upload to {}", to_string(dst));
  stream.enqueue([&] {
    if (dst.bytes() > 0) std::memcpy(dst.raw(), host, static_cast<std::size_t>(dst.bytes()));
  });
}

void HostDevice::download(const Tensor& src, void* host, Stream& stream) {
  PITON_ASSERT(src.contiguous(), "download of {}", to_string(src));
  stream.enqueue([&] {
    if (src.bytes() > 0) std::memcpy(host, src.raw(), static_cast<std::size_t>(src.bytes()));
  });
  stream.synchronize();
}

void HostDevice::copy(const Tensor& dst, const Tensor& src, Stream& stream) {
  check_copy(dst, src);
  stream.enqueue([&] {
    if (dst.bytes() > 0) std::memcpy(dst.raw(), src.raw(), static_cast<std::size_t>(dst.bytes()));
  });
}

void HostDevice::zero(const Tensor& dst, Stream& stream) {
  PITON_ASSERT(dst.contiguous(), "zero of {}", to_string(dst));
  stream.enqueue([&] { clear(dst.raw(), dst.bytes()); });
}

void HostDevice::zero_new(const Tensor& dst, Stream& stream) {
  PITON_ASSERT(dst.contiguous(), "zero of {}", to_string(dst));
  stream.enqueue([&] {
    // Return whole pages to the system, which supplies zeros at the next access. Then the threads
    // that use the pages touch them first, and pages that were never touched cost nothing here.
    std::byte* const end = dst.raw() + dst.bytes();
    std::byte* const first =
        dst.raw() + (-reinterpret_cast<std::uintptr_t>(dst.raw()) & (kHugePage - 1));
    const std::int64_t pages = end > first ? (end - first) / kHugePage * kHugePage : 0;
    if (pages == 0 || madvise(first, static_cast<std::size_t>(pages), MADV_DONTNEED) != 0) {
      return clear(dst.raw(), dst.bytes());
    }
    clear(dst.raw(), first - dst.raw());
    clear(first + pages, end - first - pages);
  });
}

void HostDevice::clear(std::byte* data, std::int64_t bytes) {
  const auto part = [=](std::int64_t index) {
    const std::int64_t begin = index * kClearPart;
    std::memset(data + begin, 0, static_cast<std::size_t>(std::min(kClearPart, bytes - begin)));
  };
  const std::int64_t parts = (bytes + kClearPart - 1) / kClearPart;
  if (threads_ != nullptr) return threads_->run(parts, part);
  for (std::int64_t index = 0; index < parts; ++index) part(index);
}

}  // namespace piton
