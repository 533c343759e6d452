// The training loop: steps, saves and stops, on a Trainer.
#pragma once

#include <functional>
#include <optional>

#include "base/progress.h"
#include "train/machine.h"
#include "train/pretrain_options.h"

namespace piton {

struct PretrainResult {
  std::int64_t iteration = 0;
  double loss = 0;                        // of the last step
  std::optional<double> validation_loss;  // the last one
  bool finished = false;                  // the last iteration is done
  int stop_signal = 0;                    // what ended the run before its last step; 0: nothing
  bool saved = false;                     // a checkpoint holds all that has been trained
};

// Collective over all ranks. `stop`: the number of a signal that asks to end, or 0; asked before
// each step on every rank, and what any of them says saves and ends the run on all. Errors are
// those of Trainer. `over` is called on each rank once the run has ended well and all that is kept
// of it is on the disk, before anything is taken down: from then on being asked to end changes
// nothing.
PretrainResult pretrain(const Machine& machine, const PretrainOptions& options,
                        const std::function<int()>& stop, const std::function<void()>& over,
                        Progress& progress);

}  // namespace piton
