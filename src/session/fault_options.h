// --fault: what goes wrong in a run, on purpose. Only in builds with fault injection
// (kFaultInjection); others do not have the option.
//
//   kill:RANK:STEP             that rank ends by SIGKILL before its step number STEP
//   stop:RANK:STEP             that rank stops by SIGSTOP there
//   delay:RANK:STEP:SECONDS    that rank sleeps there
//   nan:RANK:STEP              a gradient of that rank has a NaN in that step
//   write:RANK:STEP            from that step on no file of that rank grows, as on a full disk
//   drop:STEP:GROUP:KIND:N     in that step, collective number N of this kind of the groups of this
//                              name does not take place (comm/faulty_world.h)
//
// Steps are iterations of the run, from 1.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/options/options.h"
#include "base/platform.h"
#include "comm/faulty_world.h"

namespace piton {

enum class FaultKind : std::uint8_t { kKill, kStop, kDelay, kNan, kWrite, kDrop };

struct PlannedFault {
  FaultKind kind = FaultKind::kKill;
  int rank = 0;
  std::int64_t step = 1;
  double seconds = 0;         // of a delay
  CollectiveName collective;  // that is dropped
};

// Throws Error(kUsage) for a text that is no fault.
PlannedFault parse_fault(std::string_view text);

struct FaultOptions {
  std::vector<std::string> fault;

  template <typename Visitor>
  void visit(Visitor&& v) {
    if constexpr (kFaultInjection) {
      v(Option{"fault",
               "what goes wrong: kill|stop|nan|write:RANK:STEP, delay:RANK:STEP:SECONDS, "
               "drop:STEP:GROUP:KIND:N; only in test builds",
               {.placeholder = "SPEC"}},
        fault);
    }
  }

  std::vector<PlannedFault> planned() const;
};

}  // namespace piton
