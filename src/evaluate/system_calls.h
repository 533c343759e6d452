// How filters of system calls (seccomp) know those of this processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace piton {

inline constexpr std::size_t kMostOldCalls = 2;

struct SystemCalls {
  std::uint32_t architecture = 0;  // AUDIT_ARCH_...
  std::uint32_t end = 0;           // numbers from here on are of another interface
  // Calls that start processes and that newer processors do not have; at most kMostOldCalls.
  std::span<const long> old;
};

// Allocates nothing: it is called between fork() and exec().
SystemCalls system_calls();

}  // namespace piton
