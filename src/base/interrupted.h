// Repeats system calls that a signal has interrupted.
#pragma once

#include <cerrno>

namespace piton {

// Repeats `call` while it fails with EINTR. Returns its last result; errno is that of the last
// call.
template <typename Call>
auto until_uninterrupted(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace piton
