#include "base/files/creatable.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/files/file_failure.h"

namespace piton {
namespace {

std::filesystem::path folder_above(const std::filesystem::path& path) {
  const std::filesystem::path parent = path.parent_path();
  return parent.empty() ? std::filesystem::path(".") : parent;
}

}  // namespace

void check_creatable(const std::filesystem::path& file) {
  std::filesystem::path folder = folder_above(file);
  struct stat about;
  while (::stat(folder.c_str(), &about) != 0) {
    const int code = errno;
    const std::filesystem::path parent = folder_above(folder);
    if (code != ENOENT || parent == folder) throw_file_failure(folder, "open folder", code);
    folder = parent;
  }
  if (!S_ISDIR(about.st_mode)) throw_file_failure(folder, "create folder", ENOTDIR);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) throw_file_failure(file, "create", errno);
}

}  // namespace piton
