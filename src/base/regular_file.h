// Files that must be regular, read by calls and not by a mapping.
//
// Opening a named pipe or a device would wait or never end, so both are refused at once. A mapping
// of a file that another program cuts short, or whose network drops, ends the process by SIGBUS at
// whatever instruction touches it; a read reports it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace piton {

// The whole file. Throws Error(kData) if it is absent, unreadable, no regular file, or longer than
// `limit_bytes`.
std::string read_regular_file(const std::filesystem::path& path, std::int64_t limit_bytes);

// A file open for reading at any place, by several threads at once. Movable.
class RegularFile {
 public:
  // Throws Error(kData) as said above.
  explicit RegularFile(const std::filesystem::path& path);
  ~RegularFile();
  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size_bytes() const { return size_; }  // when it was opened

  // Fills `out` with the bytes from `offset` on. Throws Error(kData) where the file has become
  // shorter, or the system cannot read it.
  void read_at(std::int64_t offset, std::span<std::byte> out) const;

  // Size and time of change as they are now, for noticing that somebody wrote to the file.
  std::string stamp() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace piton
