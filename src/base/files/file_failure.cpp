#include "base/files/file_failure.h"

#include <cerrno>

#include "base/error.h"

namespace piton {

void throw_file_failure(const std::filesystem::path& path, std::string_view doing, int code) {
  if (code == ENOSPC || code == EDQUOT) {
    throw Error(Fault::kData,
                "{}: cannot {}: the disk is full ({}); free some space or write elsewhere",
                path.string(), doing, system_message(code));
  }
  throw Error(Fault::kData, "{}: cannot {}: {}", path.string(), doing, system_message(code));
}

}  // namespace piton
