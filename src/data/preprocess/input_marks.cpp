#include "data/preprocess/input_marks.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <span>

#include "base/hash.h"

namespace piton {
namespace {

std::string hash_of(const std::string& text) {
  StreamHash hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.hex();
}

}  // namespace

InputMarks input_marks(const std::vector<InputFile>& files) {
  InputMarks marks;
  marks.before.push_back(hash_of(""));
  for (const InputFile& file : files) {
    if (file.path == "-") return {};
    struct stat status {};
    ::stat(file.path.c_str(), &status);
    marks.at.push_back(hash_of(fmt::format("{}|{}|{}.{}", file.path, file.bytes,
                                           status.st_mtim.tv_sec, status.st_mtim.tv_nsec)));
    marks.before.push_back(hash_of(marks.before.back() + marks.at.back()));
  }
  return marks;
}

}  // namespace piton
