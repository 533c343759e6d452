#include "tasks/task_table.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/listed.h"
#include "tasks/lm_eval_tasks.h"
#include "tasks/mindspeed_tasks.h"
#include "tasks/task_file.h"

namespace piton {

std::string_view name(Protocol protocol) {
  return protocol == Protocol::kLmEval ? "lm-eval" : "mindspeed";
}

std::vector<Task> built_in_tasks(Protocol protocol) {
  return protocol == Protocol::kLmEval ? lm_eval_tasks() : mindspeed_tasks(false);
}

Task find_task(const std::string& wanted, const TaskChoice& choice) {
  if (wanted.ends_with(".toml")) return read_task_file(wanted, choice.protocol);
  const std::vector<Task> tasks = choice.protocol == Protocol::kLmEval
                                      ? lm_eval_tasks()
                                      : mindspeed_tasks(choice.strict_lambada);
  std::vector<std::string> names;
  for (const Task& task : tasks) {
    if (task.name == wanted) return task;
    names.push_back(task.name);
  }
  const Protocol other =
      choice.protocol == Protocol::kLmEval ? Protocol::kMindSpeed : Protocol::kLmEval;
  for (const Task& task : built_in_tasks(other)) {
    if (task.name != wanted) continue;
    throw Error(Fault::kUsage,
                "--task: {} is a task of --protocol {}, and --protocol is {}; it has {}", wanted,
                name(other), name(choice.protocol), listed(names, names.size()));
  }
  const std::string near = nearest_name(wanted, names);
  throw Error(Fault::kUsage, "--task: got \"{}\"{}; wanted one of {}, or a file NAME.toml", wanted,
              near.empty() ? "" : fmt::format(", did you mean {}?", near),
              listed(names, names.size()));
}

}  // namespace piton
