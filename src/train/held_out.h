// Losses of the samples that a run does not train on.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "train/open_run.h"
#include "train/sinks/run_sink.h"

namespace piton {

// One evaluation of the run as it is: if there are several sets, each of them, then all together,
// over the tokens of all batches and ranks. Validation continues in the order of its samples where
// the evaluation before ended, but for --full-validation. A loss is unset if no token has one.
// Collective. `at_batch` gets the number of each batch, from 1.
std::vector<RunValidation> evaluate_held_out(OpenedRun& run, HeldOutSet set,
                                             const std::function<void(std::int64_t)>& at_batch);

}  // namespace piton
