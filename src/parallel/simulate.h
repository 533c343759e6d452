// Simulates a schedule: when each step starts and ends, which stage waits, what is alive.
#pragma once

#include <vector>

#include "parallel/schedule.h"

namespace piton {

struct StepTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;  // a whole backward takes both
  double message = 0;          // from one stage to the next
};

struct Simulation {
  double time = 0;                    // of the whole schedule
  double ideal = 0;                   // the busiest stage's own work
  double bubble = 0;                  // time / ideal - 1
  std::vector<int> peak_activations;  // [stages]: most (chunk, micro-batch) tapes alive at once; a
                                      // tape ends with its last backward part
  std::vector<std::vector<double>> start;  // [stages][step]
  std::vector<std::vector<double>> end;
};

// times[c]: of chunk c; one entry serves all chunks. Throws Error(kUsage) naming the waiting steps
// if the schedule cannot end (deadlock).
Simulation simulate(const Schedule& schedule, const std::vector<StepTimes>& times);

}  // namespace piton
