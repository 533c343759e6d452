// Files for readers that need paths: in memory if the machine has such a folder; one folder per
// process.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace piton {

// A folder of this process, removed at its end; those that dead processes left go with it.
class ScratchFolder {
 public:
  ScratchFolder() {
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::path memory = "/dev/shm";
    const fs::path base = fs::is_directory(memory, error) ? memory : fs::temp_directory_path();
    const std::string stem = "piton-fuzz-";
    for (const auto& entry : fs::directory_iterator(base, error)) {
      const std::string name = entry.path().filename().string();
      const long process = name.starts_with(stem) ? std::atol(name.c_str() + stem.size()) : 0;
      const bool dead =
          process > 0 && ::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
      if (dead) fs::remove_all(entry.path(), error);
    }
    path_ = base / (stem + std::to_string(::getpid()));
    fs::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline const std::filesystem::path& scratch_folder() {
  static const ScratchFolder folder;
  return folder.path();
}

// Writes the file again and returns its path.
inline std::string scratch_file(const std::string& name, std::string_view bytes) {
  const std::filesystem::path path = scratch_folder() / name;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return path.string();
}

// Removes the bytes before the next zero byte, and that byte, from `bytes`.
inline std::string_view take_part(std::string_view& bytes) {
  const std::size_t end = bytes.find('\0');
  const std::string_view part = bytes.substr(0, end);
  bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  return part;
}

}  // namespace piton
