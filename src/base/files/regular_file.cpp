#include "base/files/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files/file_failure.h"
#include "base/files/interrupted.h"

namespace piton {
namespace {

// A disk works on this much at a time without a pause, of each of several threads.
constexpr std::int64_t kAnnounced = std::int64_t{8} << 20;
// Less than this comes in one or two requests anyway.
constexpr std::int64_t kLeastAnnounced = std::int64_t{1} << 20;
// Of one call, so that the next stretch is announced while this one is copied.
constexpr std::size_t kCopied = std::size_t{2} << 20;

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

RegularFile::RegularFile(const std::filesystem::path& path) : path_(path) {
  // O_NONBLOCK: the open of a pipe must not wait for a writer. Reads of regular files ignore it.
  descriptor_ = until_uninterrupted(
      [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); });
  if (descriptor_ < 0) throw_file_failure(path, "open", errno);
  struct stat about;
  const int code = ::fstat(descriptor_, &about) == 0 ? 0 : errno;
  if (code == 0 && S_ISREG(about.st_mode)) {
    size_ = about.st_size;
    return;
  }
  ::close(descriptor_);
  if (code != 0) throw_file_failure(path, "look at", code);
  throw Error(Fault::kData, "{}: cannot read: got {}, wanted a file", path.string(),
              kind_of(about.st_mode));
}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

RegularFile& RegularFile::operator=(RegularFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

void RegularFile::read_at(std::int64_t offset, std::span<std::byte> out) const {
  const std::int64_t end = offset + static_cast<std::int64_t>(out.size());
  ReadAhead ahead(*this, offset, end);
  while (!out.empty()) {
    ahead.reading(offset);
    const ssize_t got = until_uninterrupted(
        [&] { return ::pread(descriptor_, out.data(), std::min(out.size(), kCopied), offset); });
    if (got < 0) throw_file_failure(path_, fmt::format("read bytes {} to {}", offset, end), errno);
    if (got == 0) {
      struct stat about;
      const bool known = ::fstat(descriptor_, &about) == 0;
      throw Error(Fault::kData,
                  "{}: cut short while it was in use: got {} bytes, wanted those from {} to {}; "
                  "restore the file and start again",
                  path_.string(), known ? about.st_size : offset, offset, end);
    }
    out = out.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

void RegularFile::will_read(std::int64_t offset, std::int64_t bytes) const {
  ::posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_WILLNEED);  // advice: it cannot fail
}

ReadAhead::ReadAhead(const RegularFile& file, std::int64_t begin, std::int64_t end)
    : file_(&file), announced_(end - begin < kLeastAnnounced ? end : begin), end_(end) {}

void ReadAhead::reading(std::int64_t offset) {
  const std::int64_t until = std::min(end_, offset + kAnnounced);
  if (announced_ >= until || (until < end_ && until - announced_ < kAnnounced / 2)) return;
  file_->will_read(announced_, until - announced_);
  announced_ = until;
}

std::string RegularFile::stamp() const {
  struct stat about;
  if (::fstat(descriptor_, &about) != 0) throw_file_failure(path_, "look at", errno);
  return fmt::format("{} {}.{}", about.st_size, about.st_mtim.tv_sec, about.st_mtim.tv_nsec);
}

FilePart::FilePart(const RegularFile& file, std::int64_t offset, std::int64_t bytes)
    : file_(&file), offset_(offset), bytes_(bytes) {
  PITON_ASSERT(offset >= 0 && bytes >= 0 && bytes <= file.size_bytes() &&
                   offset <= file.size_bytes() - bytes,
               "{} bytes at {} of {}", bytes, offset, file.size_bytes());
}

std::string read_regular_file(const std::filesystem::path& path, std::int64_t limit_bytes) {
  const RegularFile file(path);
  if (file.size_bytes() > limit_bytes) {
    throw Error(Fault::kData, "{}: too long: got {} bytes, wanted at most {}", path.string(),
                file.size_bytes(), limit_bytes);
  }
  std::string text(static_cast<std::size_t>(file.size_bytes()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

}  // namespace piton
