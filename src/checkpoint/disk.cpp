#include "checkpoint/disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/interrupted.h"

namespace piton {
namespace {

constexpr mode_t kFileMode = 0640;

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view doing, int code) {
  throw Error(Fault::kData, "checkpoint: {}: cannot {}: {}{}", path.string(), doing,
              system_message(code),
              code == ENOSPC || code == EDQUOT ? "; free some space or save elsewhere" : "");
}

// Fails if the last part of `path` is a link.
int open_file(const std::filesystem::path& path, int flags) {
  return until_uninterrupted(
      [&] { return ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, kFileMode); });
}

}  // namespace

void Disk::make_folder(const std::filesystem::path& folder) const {
  announce("make folder", folder);
  create_folders(folder);
}

void Disk::create(const std::filesystem::path& path, std::int64_t bytes) const {
  announce("create", path);
  // Remove anything with this name first: a planted link would lead out of the folder.
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail(path, "replace", errno);
  const int descriptor = open_file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (descriptor < 0) fail(path, "create", errno);
  std::string_view doing = "set the mode of";
  int code = ::fchmod(descriptor, kFileMode) == 0 ? 0 : errno;
  try {
    announce("reserve", path);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  if (code == 0 && bytes > 0) {
    doing = "reserve space for";
    if (until_uninterrupted([&] { return ::fallocate(descriptor, 0, 0, bytes); }) != 0) {
      code = errno;
      // The file system cannot reserve space: a full disk is found during the write.
      if (code == EOPNOTSUPP || code == ENOSYS) {
        code = until_uninterrupted([&] { return ::ftruncate(descriptor, bytes); }) == 0 ? 0 : errno;
      }
    }
  }
  ::close(descriptor);
  if (code != 0) fail(path, doing, code);
}

void Disk::write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) const {
  create(path, 0);
  DiskFile file(*this, path);
  file.write_at(0, bytes);
  file.sync();
}

void Disk::rename(const std::filesystem::path& from, const std::filesystem::path& to) const {
  announce("rename", to);
  if (::rename(from.c_str(), to.c_str()) != 0) fail(to, "rename into place", errno);
}

bool Disk::exchange(const std::filesystem::path& a, const std::filesystem::path& b) const {
  announce("exchange", b);
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS) return false;
  fail(b, "exchange", errno);
}

void Disk::sync_folder(const std::filesystem::path& folder) const {
  announce("sync", folder);
  piton::sync_folder(folder);
}

void Disk::forget(const std::filesystem::path& path) const {
  announce("forget", path);
  const int descriptor = open_file(path, O_RDONLY);
  if (descriptor < 0) fail(path, "open", errno);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

void Disk::remove_tree(const std::filesystem::path& path) const {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) return;
  announce("remove", path);
  std::filesystem::remove_all(path, error);
  if (error) fail(path, "remove", error.value());
}

std::int64_t Disk::free_bytes(const std::filesystem::path& folder) {
  struct statvfs about;
  if (::statvfs(folder.c_str(), &about) != 0) fail(folder, "ask for free space of", errno);
  return static_cast<std::int64_t>(about.f_bavail) * static_cast<std::int64_t>(about.f_frsize);
}

DiskFile::DiskFile(const Disk& disk, std::filesystem::path path)
    : disk_(&disk), path_(std::move(path)) {
  descriptor_ = open_file(path_, O_WRONLY);
  if (descriptor_ < 0) fail(path_, "open", errno);
}

DiskFile::~DiskFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

DiskFile::DiskFile(DiskFile&& other) noexcept
    : disk_(other.disk_),
      path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      unflushed_begin_(other.unflushed_begin_),
      unflushed_bytes_(other.unflushed_bytes_) {}

void DiskFile::write_at(std::int64_t offset, std::span<const std::byte> bytes) {
  disk_->announce("write", path_);
  while (!bytes.empty()) {
    const ssize_t wrote =
        ::pwrite(descriptor_, bytes.data(), std::min(bytes.size(), kPieceBytes), offset);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail(path_, "write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    flush_early(offset, wrote);
    offset += wrote;
  }
}

// The disk begins with what has been written while the rest is: sync() waits for less. Only a hint:
// where the system does not take it, nothing is lost.
void DiskFile::flush_early(std::int64_t offset, std::int64_t bytes) {
  constexpr std::int64_t kFlushedBytes = std::int64_t{8} << 20;
  if (offset != unflushed_begin_ + unflushed_bytes_) {
    unflushed_begin_ = offset;
    unflushed_bytes_ = 0;
  }
  unflushed_bytes_ += bytes;
  if (unflushed_bytes_ < kFlushedBytes) return;
  static_cast<void>(
      ::sync_file_range(descriptor_, unflushed_begin_, unflushed_bytes_, SYNC_FILE_RANGE_WRITE));
  unflushed_begin_ += unflushed_bytes_;
  unflushed_bytes_ = 0;
}

void DiskFile::sync() {
  disk_->announce("sync", path_);
  if (until_uninterrupted([&] { return ::fsync(descriptor_); }) != 0) fail(path_, "flush", errno);
}

}  // namespace piton
