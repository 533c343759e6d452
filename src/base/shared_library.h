// A shared library that is opened when it is needed, so that programs start without it.
#pragma once

#include <string>
#include <vector>

namespace piton {

class SharedLibrary {
 public:
  // Opens the first of `files`, at least one, that exists: names, which the system searches, or
  // paths. Throws Error(kUsage): "WHAT: cannot open libx.so.2: REASON; ADVICE".
  SharedLibrary(std::string what, const std::vector<std::string>& files, const std::string& advice);
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;
  ~SharedLibrary();

  // function = the address of `name`. Throws Error(kUsage) if the library does not have it.
  template <typename Function>
  void find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(address(name));
  }

 private:
  void* address(const char* name) const;

  std::string what_;
  std::string file_;
  void* handle_ = nullptr;
};

}  // namespace piton
