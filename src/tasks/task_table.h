// The table of built-in tasks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tasks/task.h"

namespace piton {

// All tasks of a protocol, by name.
std::vector<Task> built_in_tasks(Protocol protocol);

// The task called `name`, in upper or lower case, or that of a file NAME.toml (task_file.h). Throws
// Error(kUsage) if there is none, with the names that exist.
Task find_task(const std::string& name, const TaskChoice& choice);

}  // namespace piton
