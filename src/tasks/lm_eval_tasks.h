// The tasks of protocol lm-eval: prompts and decisions of lm-evaluation-harness 0.4
// (lm_eval/tasks/*/*.yaml).
#pragma once

#include <vector>

#include "tasks/task.h"

namespace piton {

std::vector<Task> lm_eval_tasks();

}  // namespace piton
