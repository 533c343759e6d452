// System calls that a signal may cut short.
#pragma once

#include <cerrno>

namespace piton {

// Repeats `call` while it fails with EINTR; gives its last result, with errno as it left it.
template <typename Call>
auto until_uninterrupted(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace piton
