// The options of a run for its log.
#pragma once

#include <string>
#include <vector>

#include "train/run/pretrain_options.h"

namespace piton {

// Every option that differs from its default, one line for each place that it comes from:
// "options of the command line: lr = 0.001, seed = 7", the files, and at last "options by rule",
// whose values follow from others. `given`: what was given, with PretrainOptions::changed;
// `settled`: the same with the value of every derived default, and with a checkpoint's schedules
// under --use-checkpoint-opt_param-scheduler.
std::vector<std::string> option_lines(const PretrainOptions& given, PretrainOptions settled);

// A line for each option that has no effect on this run, as in Megatron-LM, whose scripts give it:
// --sequence-parallel on one tensor rank, intervals of saves without --save, and flags of other
// positions and activations than those of `model`.
std::vector<std::string> lines_without_effect(const PretrainOptions& options,
                                              const ModelConfig& model);

}  // namespace piton
