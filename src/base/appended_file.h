// A file that a run appends records to, and that must not end a run where the disk is full.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace piton {

class AppendedFile {
 public:
  // Opens the file that is there, to go on behind its bytes. Throws Error(kData) if it cannot.
  explicit AppendedFile(const std::filesystem::path& path);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  // One record, handed to the system at once. Where the disk is full the file keeps its whole
  // records, and the new ones are tried again with the next. Returns why, or "".
  std::string append(std::string_view record);
  // Of records that are still to be written. Throws Error(kData) if they cannot be.
  void finish();

 private:
  std::string write_pending();

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;  // of whole records in the file
  std::string pending_;
};

}  // namespace piton
