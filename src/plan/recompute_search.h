// Finds what backward shall compute again: the least work that makes every rank fit a limit.
//
// Every candidate is planned on a device without memory. The memory of a stage depends on its own
// rules alone, so the number of whole layers is found stage by stage. What a candidate costs is the
// time of the kernel calls that it has more than the run without it (and less those that it has
// not), each call measured once by the kernels of the run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "plan/estimate.h"
#include "train/recompute_choice.h"

namespace piton {

// Calls of two steps by describe(), with one of each. Its tensors have shapes and no memory.
struct PlannedCall {
  KernelCall call;
  std::int64_t count = 0;
};
using PlannedCalls = std::map<std::string, PlannedCall>;

struct RecomputeProbe {
  std::int64_t peak_bytes = 0;
  PlannedCalls calls;
};

// Plans one rank.
using ProbeRank = std::function<RecomputeProbe(const RunPlan& plan, int rank)>;
// Seconds of one call by the kernels of the run.
using TimeCall = std::function<double(const KernelCall& call)>;

// Deterministic, but for `seconds`: rank 0 chooses for all. Throws Error(kMemory) if nothing fits
// `limit_bytes`, with the least that a rank needs.
RecomputeChoice choose_recompute(const RunPlan& plan, std::int64_t limit_bytes,
                                 const ProbeRank& probe, const TimeCall& seconds);

}  // namespace piton
