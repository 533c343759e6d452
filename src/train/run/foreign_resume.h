// Continues a run of Megatron where its checkpoint ends: what this run must have in common with
// it, and its state.
#pragma once

#include <string>

#include "checkpoint/manifest.h"
#include "megatron/format/run_progress.h"
#include "train/run/pretrain_options.h"

namespace piton {

// Compares what the checkpoint `where` says of its run with the resolved options of this one, as
// compare_options() (train/run/resume_rules.h) does, and returns and throws as that. Schedules are
// compared, and may be taken, only where the optimizer continues, too (no --no-load-optim).
std::string compare_with_megatron(const MegatronRun& run, const std::string& where,
                                  PretrainOptions& settled);

// `fresh`, with the iteration, the samples and the place in the schedules of `run`. Without its
// optimizer, the schedules start again.
TrainState state_of_megatron(const MegatronRun& run, const TrainState& fresh,
                             const PretrainOptions& settled);

}  // namespace piton
