// A file to which a run appends records. A full disk does not end the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace piton {

class AppendedFile {
 public:
  // Opens an existing file; records go after its bytes. Throws Error(kData) if it cannot be opened.
  explicit AppendedFile(const std::filesystem::path& path);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  // Writes one record without buffering. If the disk is full, the file keeps its whole records, and
  // the next call tries the new ones again. Returns the reason of a failure, or "".
  std::string append(std::string_view record);
  // Writes the records that append() could not write. Throws Error(kData) if this fails.
  void finish();

 private:
  std::string write_pending();

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;  // size of the whole records in the file
  std::string pending_;
};

}  // namespace piton
