// A temporary folder of this process, removed at the end.
#pragma once

#include <unistd.h>

#include <filesystem>

#include "base/error.h"

namespace piton::cli {

class ScratchFolder {
 public:
  ScratchFolder()
      : path_(std::filesystem::temp_directory_path() / fmt::format("piton-bench-{}", ::getpid())) {}
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  // It is created by the first file that is written there.
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace piton::cli
