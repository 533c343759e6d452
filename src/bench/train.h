// `bench train`: whole training steps of random weights on random tokens, beside what limits them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "kernels/timed_kernels.h"
#include "train/run_plan.h"

namespace piton {

struct TrainBenchOptions {
  RunPlan plan;
  std::int64_t micro_batch = 1;
  int rounds = 7;
  bool profile = false;  // one more step, call by call
  bool floor = true;     // measure every product of the step alone
};

struct TrainBench {
  Samples step;
  double tokens = 0;         // of all ranks, a step
  double flops = 0;          // of this rank, a step: 3 x forward, recomputation not counted
  double peak = 0;           // of this rank, flops a second; 0: not measured
  double floor_seconds = 0;  // sum of the products measured alone; 0: not measured
  std::vector<CallFigure> products;
  double start_seconds = 0;         // from nothing to weights that are ready
  double first_step_seconds = 0;    // cold memory, weights packed for the first time
  MemoryCounts memory;              // of the arena
  std::int64_t resident_bytes = 0;  // of the process, before anything else was measured
  std::int64_t planned_bytes = 0;   // what `plan` says
  double profiled_step_seconds = 0;
  std::map<std::string, CallTime, std::less<>> profile;          // by name of the call
  std::map<std::string, CallTime, std::less<>> profile_by_call;  // by sizes as well
};

// Collective over all ranks. Each round: the peak, one step, every product alone.
TrainBench bench_train(const Machine& machine, const TrainBenchOptions& options);

}  // namespace piton
