// Repeats system calls that a signal has interrupted.
#pragma once

#include <cerrno>
#include <cstddef>

namespace piton {

// The most bytes that one call reads or writes. Linux moves at most 2^31 - 4096 bytes per call;
// with a smaller piece a signal is handled sooner.
inline constexpr std::size_t kPieceBytes = std::size_t{1} << 30;

// Repeats `call` while it fails with EINTR. Returns its last result; errno is that of the last
// call.
template <typename Call>
auto until_uninterrupted(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace piton
