#include <linux/audit.h>
#include <sys/syscall.h>

#include <array>

#include "evaluate/system_calls.h"

namespace piton {

SystemCalls system_calls() {
  static constexpr std::array<long, kMostOldCalls> kOld = {SYS_fork, SYS_vfork};
  constexpr std::uint32_t kX32 = 0x40000000;
  return {.architecture = AUDIT_ARCH_X86_64, .end = kX32, .old = kOld};
}

}  // namespace piton
