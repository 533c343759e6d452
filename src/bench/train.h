// `bench train`: times of whole training steps with random weights and tokens, and their limits.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/measured_ranks.h"
#include "bench/timing.h"
#include "kernels/measured/timed_kernels.h"
#include "plan/step_time.h"
#include "train/run/run_plan.h"

namespace piton {

struct TrainBenchOptions {
  RunPlan plan;
  int rounds = 7;
  bool profile = false;      // profile call by call in additional steps
  bool floor = true;         // measure every product of the step alone
  bool record_steps = true;  // where they can be
  bool step_time = false;    // estimate the step as `plan` does, with links and calls measured
};

struct TrainBench {
  Samples step;
  double tokens = 0;         // of all ranks, per step
  double flops = 0;          // of this rank, per step: 3 x forward, without recomputation
  double peak = 0;           // of this rank, FLOPs per second; 0: not measured
  double floor_seconds = 0;  // sum of the products measured alone; 0: not measured
  std::vector<CallFigure> products;
  double start_seconds = 0;         // until the weights are ready
  double first_step_seconds = 0;    // with cold memory; packs the weights for the first time
  MemoryCounts memory;              // of the arena
  std::int64_t resident_bytes = 0;  // peak of the process, taken before the other measurements
  std::int64_t planned_bytes = 0;   // prediction of `plan`
  std::vector<MeasuredRank> ranks;  // of all
  std::optional<StepTime> planned_time;
  // Of a pipeline on hosts: idle time over the work of the busiest stage, in the best round; and
  // what the schedule has with passes of equal length.
  std::optional<double> bubble;
  double formula_bubble = 0;
  double profiled_step_seconds = 0;
  std::map<std::string, CallTime, std::less<>> profile;          // by name of the call
  std::map<std::string, CallTime, std::less<>> profile_by_call;  // by name and sizes
};

// Collective over all ranks. Each round measures the peak, one step, and every product alone; with
// `step_time` all ranks then measure the calls of the plan at the same time.
TrainBench bench_train(const Machine& machine, const TrainBenchOptions& options);

}  // namespace piton
