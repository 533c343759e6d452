// The name of this machine, for messages and names of files.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace piton {

// "unknown-host" if the system does not tell the name.
inline std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown-host";
  return name.data();
}

}  // namespace piton
