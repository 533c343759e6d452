#include <linux/audit.h>

#include "evaluate/system_calls.h"

namespace piton {

SystemCalls system_calls() {
  return {.architecture = AUDIT_ARCH_AARCH64, .end = 0x40000000, .old = {}};
}

}  // namespace piton
