// Files: whole or absent.
//
// A file appears under its name only when it is complete: its bytes are written to NAME.tmp-PID in
// the same folder and flushed to the disk, then the file is renamed. Files are created 0640 and
// folders 0750 independent of the umask. Every failure is Error(kData) with the path and the
// system's reason; a full disk is named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace piton {

// Creates `folder` and its missing parents, each 0750.
void create_folders(const std::filesystem::path& folder);

// The whole file. Throws Error(kData) if absent, unreadable, or longer than `limit_bytes`.
std::string read_text_file(const std::filesystem::path& path,
                           std::int64_t limit_bytes = std::int64_t{1} << 32);

// A file that is being written. The destructor removes it if there was no commit().
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);  // creates missing parents
  ~AtomicFile();
  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;

  void write(std::span<const std::byte> bytes);  // appends; buffered
  void write(std::string_view text);
  // Overwrites bytes that were written before; `offset` + size must not pass the end.
  void write_at(std::int64_t offset, std::span<const std::byte> bytes);
  std::int64_t size_bytes() const;
  // Flushes, fsyncs file and folder, renames. After it the file exists whole.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// AtomicFile in one call.
void write_text_file(const std::filesystem::path& path, std::string_view text);

// A read-only view of a file's bytes, mapped; nothing is read until touched.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// fsyncs a folder, so that renames inside it survive a power cut.
void sync_folder(const std::filesystem::path& folder);

}  // namespace piton
