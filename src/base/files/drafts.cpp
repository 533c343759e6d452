#include "base/files/drafts.h"

#include <fmt/format.h>

#include <system_error>

namespace piton {

std::filesystem::path draft_path(const std::filesystem::path& file, std::int64_t process) {
  std::filesystem::path draft = file;
  draft += fmt::format(".tmp-{}", process);
  return draft;
}

void remove_drafts(std::span<const std::filesystem::path> files, std::int64_t process) {
  std::error_code ignored;
  for (const std::filesystem::path& file : files) {
    std::filesystem::remove(draft_path(file, process), ignored);
  }
}

}  // namespace piton
