// --eval-tasks of `piton pretrain` and `piton finetune`.
#pragma once

#include <memory>

#include "train/run/task_evaluator.h"

namespace piton::cli {

// Reads the files of the tasks; null if none is named. Throws Error(kUsage) for a task that runs
// programs, and as load_task().
std::unique_ptr<TaskEvaluator> make_task_evaluator(const TaskEvaluationOptions& options);

}  // namespace piton::cli
