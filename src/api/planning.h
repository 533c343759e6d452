// `plan` for programs: what every rank of a layout would hold and send.
#pragma once

#include <vector>

#include "api/engine.h"
#include "plan/estimate.h"

namespace piton {

// One estimate a rank, as if the run used `machine`'s kernels.
std::vector<RankEstimate> estimate_layout(const RunPlan& plan, std::int64_t micro_batch,
                                          const Machine& machine);

}  // namespace piton
