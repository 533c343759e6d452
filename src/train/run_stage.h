// What --stage says of the other options of a run.
#pragma once

#include "base/log.h"
#include "comm/communicator.h"
#include "train/run/pretrain_options.h"

namespace piton {

// Collective. Checks the options of --stage and sets what they mean for the model. The labels of a
// classifier that neither the model nor an option names are those of its records (data/labels/
// found_labels.h), which the first rank reads; `log` has them. Throws Error(kUsage, kData).
void settle_stage(PretrainOptions& options, Communicator& everyone, Log& log);

}  // namespace piton
