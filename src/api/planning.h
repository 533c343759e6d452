// `plan` as a function: memory and traffic of every rank of a layout.
#pragma once

#include <vector>

#include "api/engine.h"
#include "plan/estimate.h"

namespace piton {

// One estimate per rank, for a run with `machine`'s kernels.
std::vector<RankEstimate> estimate_layout(const RunPlan& plan, std::int64_t micro_batch,
                                          const Machine& machine);

}  // namespace piton
