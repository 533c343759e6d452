// The calls with which a save changes the disk. Each is announced to a hook before it runs.
//
// A test's hook ends the process, or throws, before any one of them, so that every point at which a
// save can be interrupted is tested. Every failure is Error(kData) with the path and the system's
// reason; files are created 0640 and folders 0750 whatever the umask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

namespace piton {

// `call`: "make folder", "create", "reserve", "write", "sync", "rename", "exchange", "forget",
// "remove".
using DiskHook = std::function<void(std::string_view call, const std::filesystem::path& path)>;

class Disk {
 public:
  explicit Disk(DiskHook hook = {}) : hook_(std::move(hook)) {}

  void make_folder(const std::filesystem::path& folder) const;  // with missing parents

  // Creates a file of `bytes` zeros, with space reserved on the disk if the file system can. An
  // existing file or link of that name is removed.
  void create(const std::filesystem::path& path, std::int64_t bytes) const;

  // Creates or replaces, writes and syncs; not atomic.
  void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) const;

  // Replaces an existing file; atomic.
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) const;

  // Exchanges two names atomically. Returns false and changes nothing if the file system cannot do
  // it.
  bool exchange(const std::filesystem::path& a, const std::filesystem::path& b) const;

  // Drops the cached pages of a synced file, so that the next read comes from the disk.
  void forget(const std::filesystem::path& path) const;

  void sync_folder(const std::filesystem::path& folder) const;

  // Removes a folder with its contents; fine if absent.
  void remove_tree(const std::filesystem::path& path) const;

  // Bytes that an ordinary user may still write in the file system of `folder`.
  static std::int64_t free_bytes(const std::filesystem::path& folder);

 private:
  friend class DiskFile;
  void announce(std::string_view call, const std::filesystem::path& path) const {
    if (hook_) hook_(call, path);
  }

  DiskHook hook_;
};

// An existing file, open for writing at any offset, by several ranks at once.
class DiskFile {
 public:
  DiskFile(const Disk& disk, std::filesystem::path path);
  ~DiskFile();
  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&&) = delete;

  void write_at(std::int64_t offset, std::span<const std::byte> bytes);
  void sync();

 private:
  void flush_early(std::int64_t offset, std::int64_t bytes);

  const Disk* disk_;
  std::filesystem::path path_;
  int descriptor_ = -1;
  // Written last, one after another, and not yet on the way to the disk.
  std::int64_t unflushed_begin_ = 0;
  std::int64_t unflushed_bytes_ = 0;
};

}  // namespace piton
