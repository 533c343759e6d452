// `plan` as a function: memory and traffic of every rank of a layout.
#pragma once

#include <vector>

#include "api/engine.h"
#include "plan/estimate.h"
#include "train/run/recompute_choice.h"

namespace piton {

// One estimate per rank, for a run with `machine`'s kernels.
std::vector<RankEstimate> estimate_layout(const RunPlan& plan, std::int64_t micro_batch,
                                          const Machine& machine);

// What the arena of `machine`'s own rank will hold.
MemoryCounts plan_own_memory(const RunPlan& plan, std::int64_t micro_batch, const Machine& machine);

// What backward shall compute again, under RunPlan::memory_limit, which is set. Measures kernels.
// Throws Error(kMemory) if nothing fits.
RecomputeChoice choose_recompute(const RunPlan& plan, std::int64_t micro_batch,
                                 const Machine& machine);

}  // namespace piton
