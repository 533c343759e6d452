// A hand-written schedule in which one stage has the first and the last chunk of a model.
#pragma once

#include <vector>

#include "parallel/schedule.h"

namespace piton::test {

// Two stages; the four chunks are on stages 0 1 1 0. Each micro-batch runs forward and backward
// before the next one starts.
inline Schedule letter_v(int micro_batches) {
  Schedule schedule{.name = "V",
                    .stages = 2,
                    .micro_batches = micro_batches,
                    .stage_of_chunk = {0, 1, 1, 0},
                    .steps = {{}, {}}};
  for (int m = 0; m < micro_batches; ++m) {
    for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
      const bool down = pass == Pass::kForward;
      for (const int chunk : down ? std::vector{0, 3} : std::vector{3, 0})
        schedule.steps[0].push_back({pass, m, chunk});
      for (const int chunk : down ? std::vector{1, 2} : std::vector{2, 1})
        schedule.steps[1].push_back({pass, m, chunk});
    }
  }
  return schedule;
}

}  // namespace piton::test
