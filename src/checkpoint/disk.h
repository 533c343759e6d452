// The calls by which a save changes the disk, each announced to a hook.
//
// A test's hook ends the process, or throws, before any one of them: so every instant at which a
// save can be cut off is tried. Every failure is Error(kData) with the path and the system's
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

  // A new file of `bytes` zeros with its place on the disk reserved where the file system can; a
  // file or link of that name is removed.
  void create(const std::filesystem::path& path, std::int64_t bytes) const;

  // Creates or replaces, writes and syncs; not atomic.
  void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) const;

  // Replaces a file that is there; atomic.
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) const;

  // Each takes the other's name at once. False where the file system cannot; then nothing happened.
  bool exchange(const std::filesystem::path& a, const std::filesystem::path& b) const;

  // Drops what the system keeps of a synced file in memory, so that the next read asks the disk.
  void forget(const std::filesystem::path& path) const;

  void sync_folder(const std::filesystem::path& folder) const;

  // With all that is in it; fine if absent.
  void remove_tree(const std::filesystem::path& path) const;

  // What an ordinary user may still write in the file system of `folder`.
  static std::int64_t free_bytes(const std::filesystem::path& folder);

 private:
  friend class DiskFile;
  void announce(std::string_view call, const std::filesystem::path& path) const {
    if (hook_) hook_(call, path);
  }

  DiskHook hook_;
};

// A file that is there already, open for writing at any place, as several ranks do at once.
class DiskFile {
 public:
  DiskFile(const Disk& disk, std::filesystem::path path);
  ~DiskFile();
  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&&) = delete;

  void write_at(std::int64_t offset, std::span<const std::byte> bytes);
  void sync();

 private:
  const Disk* disk_;
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace piton
