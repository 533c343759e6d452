// What a resumed run must have in common with the run that wrote its checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/run/pretrain_options.h"

namespace piton {

// Resolved options as TOML: config.toml of a run and of its checkpoints. What follows from the
// length of the run is left out: a run of another length that starts from the file derives it
// again. Paths are absolute, so that a resume may have another working directory.
std::string configuration_of(const PretrainOptions& settled);

// Compares the configuration of `checkpoint`, whose hash is checked first, with the resolved
// options of this run. Returns what differs in the schedules of learning rate and weight decay:
// what comes after the checkpoint's steps, under a constant rate or WSD, or all that
// --override-opt_param-scheduler allows; "" where nothing does. Under
// --no-load-lr-state they begin again, so nothing is compared. Under
// --use-checkpoint-opt_param-scheduler `settled` gets the checkpoint's schedules. Throws
// Error(kUsage) that names every other difference.
std::string compare_options(const std::filesystem::path& checkpoint, PretrainOptions& settled);

// What a resume does where the schedules of learning rate and weight decay differ. `before`: the
// options of the run that wrote the checkpoint `where`, after `steps` updates; `differences`: one
// message for each. Returns and throws as compare_options().
std::string settle_schedules(const PretrainOptions& before, PretrainOptions& settled,
                             std::vector<std::string> differences, std::int64_t steps,
                             const std::string& where);

// A warning if every step that is left has a learning rate of 0; "" otherwise. `place`: of the next
// step in the schedule (optim/learning_rate.h). `left`: steps.
std::string warning_of_zero_rate(const LearningRate& rate, double place, std::int64_t left);

// The length of a run in whole global batches.
double whole_steps(const LoopOptions& loop);

}  // namespace piton
