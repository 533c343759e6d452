#include "base/shared_library.h"

#include <dlfcn.h>

#include <utility>

#include "base/error.h"

namespace piton {

SharedLibrary::SharedLibrary(std::string what, const std::vector<std::string>& files,
                             const std::string& advice)
    : what_(std::move(what)) {
  std::string why;
  for (const std::string& file : files) {
    handle_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      file_ = file;
      return;
    }
    if (const char* text = ::dlerror(); why.empty() && text != nullptr) why = text;
  }
  throw Error(Fault::kUsage, "{}: cannot open {}: {}; {}", what_, files.front(), why, advice);
}

SharedLibrary::~SharedLibrary() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

void* SharedLibrary::address(const char* name) const {
  void* const found = ::dlsym(handle_, name);
  if (found == nullptr) {
    throw Error(Fault::kUsage, "{}: {} has no {}; wanted a newer version of it", what_, file_,
                name);
  }
  return found;
}

}  // namespace piton
