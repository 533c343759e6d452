// What a resumed run must have in common with the run that wrote its checkpoint.
#pragma once

#include <filesystem>
#include <string>

#include "train/pretrain_options.h"

namespace piton {

// Resolved options as TOML: config.toml of a run and of its checkpoints.
std::string configuration_of(PretrainOptions& settled);

// Checks the hash of the configuration of `checkpoint` and compares it with the resolved options of
// this run. Returns the permitted differences in the learning rate's schedule: those after the
// checkpoint's steps, under a constant rate or WSD, or all if --override-opt_param-scheduler is
// set; "" if there are none. Throws Error(kUsage) with every other difference.
std::string compare_options(const std::filesystem::path& checkpoint, PretrainOptions& settled);

}  // namespace piton
