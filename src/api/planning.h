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

// What the arena of `machine`'s own rank will hold.
MemoryCounts plan_own_memory(const RunPlan& plan, const Machine& machine);

// What backward shall compute again, under RunPlan::memory_limit, which is set. Measures kernels.
// Throws Error(kMemory) if nothing fits.
RecomputeChoice choose_recompute(const RunPlan& plan, const Machine& machine);

// The two for runs on `machine`, which must outlive it.
class MachinePlanner final : public RunPlanner {
 public:
  explicit MachinePlanner(const Machine& machine) : machine_(machine) {}

  MemoryCounts plan_memory(const RunPlan& plan) override { return plan_own_memory(plan, machine_); }
  RecomputeChoice choose_recompute(const RunPlan& plan) override {
    return piton::choose_recompute(plan, machine_);
  }

 private:
  const Machine& machine_;
};

}  // namespace piton
