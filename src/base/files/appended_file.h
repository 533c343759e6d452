// A file to which a run appends records. A full disk does not end the run, nor does it that someone
// removes the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace piton {

class AppendedFile {
 public:
  // Whether a file that was removed or replaced may be written again at its path. Empty: always.
  using MayRestore = std::function<bool()>;

  // Opens an existing file; records go after its bytes. Throws Error(kData) if it cannot be opened.
  explicit AppendedFile(const std::filesystem::path& path, MayRestore may_restore = {});
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  // Writes one record without buffering. If the disk is full, the file keeps its whole records, and
  // the next call tries the new ones again. Returns the reason of a failure, or "".
  //
  // If the file was removed, it is first written again with all its records; if another one has
  // its name, or it was cut, records are added at the end of what is there.
  std::string append(std::string_view record);
  // What append() found to have happened to the file, once; "": nothing.
  std::string take_note() { return std::exchange(note_, ""); }
  // Writes the records that append() could not write. Throws Error(kData) if this fails.
  void finish();

 private:
  void open();
  void look_after_it();
  void restore();
  std::string write_pending();

  std::filesystem::path path_;
  MayRestore may_restore_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;  // size of the whole records in the file
  std::string pending_;
  std::string note_;
  bool is_lost_ = false;  // the path names nothing, or a file that is not this run's
};

}  // namespace piton
