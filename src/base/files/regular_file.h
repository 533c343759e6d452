// Reading of regular files by read calls, not by a mapping.
//
// Opening a named pipe or a device would wait or never end, so both are refused at once. If another
// program truncates a mapped file, or its network file system fails, the next access ends the
// process with SIGBUS; a read call reports an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace piton {

// The whole file. Throws Error(kData) if it is absent, unreadable, not a regular file, or longer
// than `limit_bytes`.
std::string read_regular_file(const std::filesystem::path& path, std::int64_t limit_bytes);

// A file open for reading at any offset, by several threads at once. Movable.
class RegularFile {
 public:
  // Throws Error(kData) if it is absent, unreadable or not a regular file.
  explicit RegularFile(const std::filesystem::path& path);
  ~RegularFile();
  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size_bytes() const { return size_; }  // when it was opened

  // Fills `out` with the bytes from `offset` on. Throws Error(kData) if the file has become shorter
  // or the system cannot read it.
  void read_at(std::int64_t offset, std::span<std::byte> out) const;

  // Tells the system that these bytes will be read soon: it may fetch them meanwhile.
  void will_read(std::int64_t offset, std::int64_t bytes) const;

  // Current size and time of modification, to detect that the file has changed.
  std::string stamp() const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

// Announces a stretch of a file, which outlives it, a few MB before it is read, so that the disk
// works while the bytes before are used. The system alone loses sight of a stretch where several
// threads read one file.
class ReadAhead {
 public:
  ReadAhead(const RegularFile& file, std::int64_t begin, std::int64_t end);

  // The bytes from `offset` on are read next.
  void reading(std::int64_t offset);

 private:
  const RegularFile* file_;
  std::int64_t announced_;  // bytes before this
  std::int64_t end_;
};

// A stretch of a file, which outlives it: some formats hold whole files of other formats. Offsets
// count from its first byte.
class FilePart {
 public:
  // All of the file.
  FilePart(const RegularFile& file) : file_(&file), bytes_(file.size_bytes()) {}
  // Asserts that the file has these bytes.
  FilePart(const RegularFile& file, std::int64_t offset, std::int64_t bytes);

  const RegularFile& file() const { return *file_; }
  const std::filesystem::path& path() const { return file_->path(); }
  std::int64_t offset() const { return offset_; }  // in the file
  std::int64_t size_bytes() const { return bytes_; }
  // As RegularFile::read_at.
  void read_at(std::int64_t offset, std::span<std::byte> out) const {
    file_->read_at(offset_ + offset, out);
  }

 private:
  const RegularFile* file_;
  std::int64_t offset_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace piton
