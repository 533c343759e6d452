// The tasks of protocol mindspeed: prompts and decisions of AscendSpeed and MindSpeed-LLM
// (tasks/evaluation), whose written examples the user gives with --few-shot-path. A rule of theirs
// that looks for the right letter before any other one is left out.
#pragma once

#include <vector>

#include "tasks/task.h"

namespace piton {

std::vector<Task> mindspeed_tasks(const TaskChoice& choice);

}  // namespace piton
