// What a resumed run must have in common with the run that wrote its checkpoint.
#pragma once

#include <filesystem>
#include <string>

#include "train/pretrain_options.h"

namespace piton {

// Resolved options as TOML: config.toml of a run and of its checkpoints.
std::string configuration_of(PretrainOptions& settled);

// Compares the configuration of `checkpoint`, whose hash is checked first, with the resolved
// options of this run. Returns what differs in the schedules of learning rate and weight decay:
// what comes after the checkpoint's steps, under a constant rate or WSD, or all that
// --override-opt_param-scheduler allows; "" where nothing does. Under
// --use-checkpoint-opt_param-scheduler `settled` gets the checkpoint's schedules. Throws
// Error(kUsage) that names every other difference.
std::string compare_options(const std::filesystem::path& checkpoint, PretrainOptions& settled);

}  // namespace piton
