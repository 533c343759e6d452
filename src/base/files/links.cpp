#include "base/files/links.h"

#include <system_error>

#include "base/error.h"

namespace piton {

namespace fs = std::filesystem;

bool is_inside(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

void refuse_link_out(const fs::path& file, const fs::path& folder) {
  std::error_code error;
  const fs::path target = fs::canonical(file, error);
  if (error) return;  // opening it will report this
  const fs::path root = fs::canonical(folder, error);
  if (error || is_inside(target, root)) return;
  throw Error(Fault::kData,
              "{}: a link that leads out of the folder, to {}; put the file itself there",
              file.string(), target.string());
}

}  // namespace piton
