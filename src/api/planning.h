// `plan` as a function: memory and traffic of every rank of a layout.
#pragma once

#include <vector>

#include "plan/estimate.h"
#include "session/machine.h"
#include "train/run/recompute_choice.h"
#include "train/run/run_planner.h"

namespace piton {

// One estimate per rank, for a run with `machine`'s kernels.
std::vector<RankEstimate> estimate_layout(const RunPlan& plan, const Machine& machine);

// Plans runs on `machine`, which must outlive it.
class MachinePlanner final : public RunPlanner {
 public:
  explicit MachinePlanner(const Machine& machine) : machine_(machine) {}

  MemoryCounts plan_memory(const RunPlan& plan) override;
  RecomputeChoice choose_recompute(const RunPlan& plan) override;

 private:
  const Machine& machine_;
};

}  // namespace piton
