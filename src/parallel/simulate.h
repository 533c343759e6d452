// Simulates a schedule: start and end of each step, idle time, and peak of activations.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/schedule.h"

namespace piton {

// Durations, in any one unit of time; with sizes of micro-batches, of one sample.
struct StepTimes {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;  // kBackward takes backward_input + backward_weight
  double message = 0;          // from one stage to the next
};

struct Simulation {
  double time = 0;    // of the whole schedule
  double ideal = 0;   // the work of the busiest stage, without waiting
  double bubble = 0;  // time / ideal - 1
  // The same within the stages: of the stage where it is largest, the time from its first step to
  // its last one / its work - 1. The papers on zero bubbles count this.
  double inner_bubble = 0;
  std::vector<int> peak_activations;  // [stages]: most (chunk, micro-batch) tapes alive at once; a
                                      // tape is freed after its last backward part
  std::vector<std::vector<double>> start;  // [stages][steps of the stage]
  std::vector<std::vector<double>> end;    // [stages][steps of the stage]
};

// times[c] is for chunk c; a single entry is for all chunks. `sizes`: samples of each micro-batch,
// by which all times are multiplied; empty: 1. Throws Error(kUsage) naming the waiting steps if the
// schedule deadlocks.
Simulation simulate(const Schedule& schedule, const std::vector<StepTimes>& times,
                    const std::vector<std::int64_t>& sizes = {});

}  // namespace piton
