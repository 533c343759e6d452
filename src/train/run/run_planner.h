// Finds out about a run before it allocates, without memory. The library above (api/planning.h)
// implements it with the whole model; the caller of a trainer passes it.
#pragma once

#include "tensor/arena.h"

namespace piton {

struct RecomputeChoice;
struct RunPlan;

class RunPlanner {
 public:
  virtual ~RunPlanner() = default;

  // What this rank's arena will hold at most. Measures nothing.
  virtual MemoryCounts plan_memory(const RunPlan& plan) = 0;
  // What a run with RunPlan::memory_limit computes again in backward. On this rank alone: measures
  // kernels. Throws Error(kMemory) if nothing fits.
  virtual RecomputeChoice choose_recompute(const RunPlan& plan) = 0;
};

}  // namespace piton
