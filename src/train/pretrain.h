// The training loop: batch, step, log, evaluate, save, stop.
#pragma once

#include <functional>

#include "base/progress.h"
#include "train/machine.h"
#include "train/pretrain_options.h"

namespace piton {

struct PretrainResult {
  std::int64_t iteration = 0;
  double loss = 0;                        // of the last step
  std::optional<double> validation_loss;  // the last one
  bool stopped_by_signal = false;         // saved; start again to continue
};

// Collective over all ranks. `stop`: polled once a step on every rank; true on any of them saves
// and ends. Checks everything that can be checked before memory is taken. On an Error this rank
// writes failure.json into the run's folder (if it has one) before the Error goes on.
PretrainResult pretrain(const Machine& machine, const PretrainOptions& options,
                        const std::function<bool()>& stop, Progress& progress);

}  // namespace piton
