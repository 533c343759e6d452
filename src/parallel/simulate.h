// Simulates a schedule: start and end of each step, idle time, and peak of activations.
#pragma once

#include <vector>

#include "parallel/schedule.h"

namespace piton {

// Durations, in any one unit of time.
struct StepTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;  // kBackward takes backward_input + backward_weight
  double message = 0;          // from one stage to the next
};

struct Simulation {
  double time = 0;                    // of the whole schedule
  double ideal = 0;                   // the work of the busiest stage, without waiting
  double bubble = 0;                  // time / ideal - 1
  std::vector<int> peak_activations;  // [stages]: most (chunk, micro-batch) tapes alive at once; a
                                      // tape is freed after its last backward part
  std::vector<std::vector<double>> start;  // [stages][steps of the stage]
  std::vector<std::vector<double>> end;    // [stages][steps of the stage]
};

// times[c] is for chunk c; a single entry is for all chunks. Throws Error(kUsage) naming the
// waiting steps if the schedule deadlocks.
Simulation simulate(const Schedule& schedule, const std::vector<StepTimes>& times);

}  // namespace piton
