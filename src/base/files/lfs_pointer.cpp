#include "base/files/lfs_pointer.h"

#include "base/error.h"

namespace piton {

void refuse_lfs_pointer(const RegularFile& file) {
  constexpr std::string_view kBegin = "version https://git-lfs.github.com/spec/";
  constexpr std::int64_t kLongest = 1024;
  const std::int64_t bytes = file.size_bytes();
  if (bytes < std::ssize(kBegin) || bytes > kLongest) return;
  std::string begin(kBegin.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(begin)));
  if (begin != kBegin) return;
  throw Error(Fault::kData,
              "{}: got a pointer of Git LFS, wanted the file itself; git lfs pull fetches it",
              file.path().string());
}

}  // namespace piton
