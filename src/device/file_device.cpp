// Addresses are offsets in the file plus one page, so that none is null.
#include "device/file_device.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <vector>

#include "base/files/file_failure.h"
#include "base/files/files.h"
#include "base/files/interrupted.h"
#include "device/thread_stream.h"

namespace piton {
namespace {

constexpr std::int64_t kPageBytes = 4096;
constexpr mode_t kOwnerOnly = 0600;
constexpr std::size_t kZerosBytes = std::size_t{1} << 20;

std::int64_t whole_pages(std::int64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

class FileDevice::File {
 public:
  File(const std::filesystem::path& folder, FileFaults faults)
      : folder_(folder), faults_(std::move(faults)) {
    create_folders(folder_);
    int code = fault("create");
    if (code == 0) {
      descriptor_ = until_uninterrupted(
          [&] { return ::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kOwnerOnly); });
      if (descriptor_ < 0) code = errno;
      if (code == EOPNOTSUPP || code == EISDIR || code == EINVAL) code = create_and_unlink();
    }
    if (code != 0) fail("create a file for offloaded tensors in it", code);
  }
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

  std::int64_t grow(std::int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    int code = fault("reserve");
    if (code == 0) code = reserve(end_, bytes);
    if (code != 0) fail(fmt::format("reserve {} bytes for offloaded tensors", bytes), code);
    return std::exchange(end_, end_ + bytes);
  }

  // Gives the space back; it is not used again.
  void drop(std::int64_t offset, std::int64_t bytes) {
    static_cast<void>(
        ::fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes));
  }

  void read(std::int64_t offset, std::byte* data, std::int64_t bytes) {
    int code = fault("read");
    while (code == 0 && bytes > 0) {
      const ssize_t count =
          until_uninterrupted([&] { return ::pread(descriptor_, data, piece(bytes), offset); });
      if (count <= 0) {
        code = count < 0 ? errno : EIO;  // its end is never read
        break;
      }
      data += count;
      offset += count;
      bytes -= count;
    }
    if (code != 0) fail("read offloaded tensors", code);
  }

  void write(std::int64_t offset, const std::byte* data, std::int64_t bytes) {
    int code = fault("write");
    while (code == 0 && bytes > 0) {
      const ssize_t count =
          until_uninterrupted([&] { return ::pwrite(descriptor_, data, piece(bytes), offset); });
      if (count < 0) {
        code = errno;
        break;
      }
      data += count;
      offset += count;
      bytes -= count;
    }
    if (code != 0) fail("write offloaded tensors", code);
  }

  void write_zeros(std::int64_t offset, std::int64_t bytes) {
    const std::vector<std::byte> zeros(
        std::min(kZerosBytes, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))));
    while (bytes > 0) {
      const std::int64_t count = std::min(bytes, static_cast<std::int64_t>(zeros.size()));
      write(offset, zeros.data(), count);
      offset += count;
      bytes -= count;
    }
  }

  // A hole reads as zeros.
  void write_hole(std::int64_t offset, std::int64_t bytes) {
    if (bytes == 0) return;
    const int holes = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    if (::fallocate(descriptor_, holes, offset, bytes) != 0) return write_zeros(offset, bytes);
    const int code = reserve(offset, bytes);
    if (code != 0) fail(fmt::format("reserve {} bytes for offloaded tensors", bytes), code);
  }

 private:
  static std::size_t piece(std::int64_t bytes) {
    return std::min(static_cast<std::size_t>(bytes), kPieceBytes);
  }
  int fault(std::string_view call) const { return faults_ ? faults_(call) : 0; }
  [[noreturn]] void fail(std::string_view doing, int code) const {
    throw_file_failure(folder_, doing, code);
  }

  // For file systems without unnamed files.
  int create_and_unlink() {
    std::string name = folder_ / "offload-XXXXXX";
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) return errno;
    return ::unlink(name.c_str()) == 0 ? 0 : errno;
  }

  // Returns an errno value.
  int reserve(std::int64_t offset, std::int64_t bytes) const {
    if (until_uninterrupted([&] { return ::fallocate(descriptor_, 0, offset, bytes); }) == 0) {
      return 0;
    }
    if (errno != EOPNOTSUPP && errno != ENOSYS) return errno;
    struct stat about;
    if (::fstat(descriptor_, &about) != 0) return errno;
    const std::int64_t size = std::max<std::int64_t>(about.st_size, offset + bytes);
    return until_uninterrupted([&] { return ::ftruncate(descriptor_, size); }) == 0 ? 0 : errno;
  }

  std::filesystem::path folder_;
  FileFaults faults_;
  int descriptor_ = -1;
  std::mutex mutex_;
  std::int64_t end_ = 0;
};

namespace {

bool in_file(const Tensor& tensor) { return tensor.place().kind == DeviceKind::kFile; }

std::int64_t offset_of(const Tensor& tensor) {
  PITON_ASSERT(in_file(tensor) && tensor.contiguous(), "{}", to_string(tensor));
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(tensor.raw())) - kPageBytes;
}

}  // namespace

FileDevice::FileDevice(const std::filesystem::path& folder, Memory& host_memory, FileFaults faults)
    : file_(std::make_shared<File>(folder, std::move(faults))), host_memory_(host_memory) {}

FileDevice::~FileDevice() = default;

std::byte* FileDevice::allocate(std::int64_t bytes) {
  const std::int64_t offset = file_->grow(whole_pages(bytes));
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(offset + kPageBytes));
}

void FileDevice::release(std::byte* data, std::int64_t bytes) {
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data));
  file_->drop(address - kPageBytes, whole_pages(bytes));
}

std::string FileDevice::name() const {
  return fmt::format("a file in {}", file_->folder().string());
}

std::unique_ptr<Stream> FileDevice::make_stream() { return std::make_unique<ThreadStream>(); }

void FileDevice::upload(const void* host, const Tensor& dst, Stream& stream) {
  stream.synchronize();
  file_->write(offset_of(dst), static_cast<const std::byte*>(host), dst.bytes());
}

void FileDevice::download(const Tensor& src, void* host, Stream& stream) {
  stream.synchronize();
  file_->read(offset_of(src), static_cast<std::byte*>(host), src.bytes());
}

void FileDevice::zero(const Tensor& dst, Stream& stream) {
  stream.enqueue([file = file_, offset = offset_of(dst), bytes = dst.bytes()] {
    file->write_zeros(offset, bytes);
  });
}

void FileDevice::zero_new(const Tensor& dst, Stream& stream) {
  stream.enqueue([file = file_, offset = offset_of(dst), bytes = dst.bytes()] {
    file->write_hole(offset, bytes);
  });
}

void FileDevice::copy(const Tensor& dst, const Tensor& src, Stream& stream) {
  check_copy(dst, src);
  const Tensor& host = in_file(dst) ? src : dst;
  PITON_ASSERT(host.place().kind == DeviceKind::kHost, "copy of {} to {}", to_string(src),
               to_string(dst));
  stream.enqueue([file = file_, out = in_file(dst), data = host.raw(), bytes = host.bytes(),
                  offset = offset_of(in_file(dst) ? dst : src)] {
    out ? file->write(offset, data, bytes) : file->read(offset, data, bytes);
  });
}

}  // namespace piton
