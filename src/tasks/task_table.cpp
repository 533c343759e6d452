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
  return protocol == Protocol::kLmEval ? lm_eval_tasks() : mindspeed_tasks({});
}

namespace {

// Megatron-LM calls tasks LAMBADA and WIKITEXT103, MindSpeed-LLM one human_eval.
std::string own_name(std::string name) {
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  if (name == "human_eval") return "humaneval";
  return name == "wikitext103" ? "wikitext" : name;
}

// lm-eval's variants and parts of a task have its name and more words: gsm8k_cot, mmlu_anatomy.
std::string whole_task(std::string_view wanted, const std::vector<std::string>& names) {
  std::string longest;
  for (const std::string& name : names) {
    if (!wanted.starts_with(name) || name.size() <= longest.size()) continue;
    const std::string_view more = wanted.substr(name.size());
    if (more.starts_with('_') || more.starts_with('-')) longest = name;
  }
  return longest;
}

}  // namespace

Task find_task(const std::string& given, const TaskChoice& choice) {
  if (given.ends_with(".toml")) return read_task_file(given, choice.protocol);
  const std::string wanted = own_name(given);
  const std::string_view flag = choice.flags.tasks;
  const std::vector<Task> tasks =
      choice.protocol == Protocol::kLmEval ? lm_eval_tasks() : mindspeed_tasks(choice);
  std::vector<std::string> names;
  for (const Task& task : tasks) {
    if (task.name == wanted) return task;
    names.push_back(task.name);
  }
  const Protocol other =
      choice.protocol == Protocol::kLmEval ? Protocol::kMindSpeed : Protocol::kLmEval;
  for (const Task& task : built_in_tasks(other)) {
    if (task.name != wanted) continue;
    const bool chooses = !choice.flags.protocol.empty();
    throw Error(Fault::kUsage, "{}: {} is a task of --protocol {}{}, and {} is {}; it has {}", flag,
                wanted, name(other), chooses ? "" : " of piton eval",
                chooses ? choice.flags.protocol : "the protocol here", name(choice.protocol),
                listed(names, names.size()));
  }
  if (given.find(',') != std::string::npos) {
    throw Error(Fault::kUsage,
                "{}: got \"{}\", wanted names with spaces between them, as in {} hellaswag boolq",
                flag, given, flag);
  }
  std::string near = nearest_name(wanted, names);
  if (near.empty()) near = whole_task(wanted, names);
  throw Error(Fault::kUsage, "{}: got \"{}\"{}; wanted one of {}, or a file NAME.toml", flag, given,
              near.empty() ? "" : fmt::format(", did you mean {}?", near),
              listed(names, names.size()));
}

}  // namespace piton
