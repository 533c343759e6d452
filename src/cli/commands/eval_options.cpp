#include "cli/commands/eval_options.h"

#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/options/option_range.h"
#include "tasks/task_table.h"

namespace piton::cli {

TaskDataOptions data_options(const EvalOptions& options) {
  TaskDataOptions data{.paths = options.paths,
                       .num_shots = options.num_shots,
                       .max_samples = options.max_samples,
                       .few_shot_path = options.few_shot_path,
                       .seed = static_cast<std::uint32_t>(options.prompts.seed),
                       .needles = options.needles};
  if (!options.limit) return data;
  if (*options.limit < 1)
    data.sample_share = options.limit;
  else
    data.max_samples = static_cast<std::int64_t>(*options.limit);
  return data;
}

std::vector<std::int64_t> pass_at(const EvalOptions& options) {
  if (!options.pass_at.empty()) return options.pass_at;
  std::vector<std::int64_t> all = {1};
  for (const std::int64_t k : {10, 100}) {
    if (k <= options.sampling.answers) all.push_back(k);
  }
  return all;
}

namespace {

void check_samples(const EvalOptions& options) {
  options.sampling.check();
  if (options.pass_at.empty()) return;
  if (!options.sampling.draws())
    throw Error(Fault::kUsage, "--pass-at-k: works only with --num-samples; leave it out");
  for (const std::int64_t k : options.pass_at)
    check_range("--pass-at-k", k, 1, options.sampling.answers);
}

}  // namespace

void check_options(const EvalOptions& options) {
  if (options.model.load.empty())
    throw Error(Fault::kUsage, "--load: no model is named; wanted the folder of a run");
  if (options.tasks.empty()) {
    std::vector<std::string> names;
    for (const Task& task : built_in_tasks(options.protocol)) names.push_back(task.name);
    throw Error(Fault::kUsage, "--task: not given; wanted one or more of {}, or a file NAME.toml",
                fmt::join(names, ", "));
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  check_range("--batch-size", options.batch_size, 1, 4096);
  if (options.sequence) check_range("--seq-length", *options.sequence, 2, kMost);
  if (options.num_shots) check_range("--num-shots", *options.num_shots, 0, 1000);
  if (options.max_samples) check_range("--max-eval-samples", *options.max_samples, 1, kMost);
  if (options.max_new_tokens) check_range("--max-new-tokens", *options.max_new_tokens, 1, kMost);
  check_samples(options);
  if (!options.reasoning_end.empty() && options.protocol != Protocol::kLmEval)
    throw Error(Fault::kUsage,
                "--think-end-token: works only with --protocol lm-eval; leave it out");
  if (options.strict_lambada && options.protocol == Protocol::kLmEval) {
    throw Error(
        Fault::kUsage,
        "--strict-lambada: works only with --protocol mindspeed; lm-eval always scores the whole "
        "word; leave it out");
  }
  if (options.protocol == Protocol::kLmEval && options.prompts.any()) {
    throw Error(Fault::kUsage, "--{}: works only with --protocol mindspeed; leave it out",
                options.prompts.alternative_prompt ? "alternative-prompt" : "prompt-type");
  }
  if (options.prompts.alternative_prompt && !options.prompts.prompt_type.empty())
    throw Error(Fault::kUsage,
                "--alternative-prompt: got --prompt-type too; wanted one of the two prompts");
  if (options.prompts.language != "en" && options.prompts.prompt_type.empty())
    throw Error(Fault::kUsage,
                "--eval-language: works only with --prompt-type; give it, or leave this "
                "out");
  check_range("--seed", options.prompts.seed, 0, std::numeric_limits<std::uint32_t>::max());
  if (options.limit) {
    if (options.max_samples)
      throw Error(Fault::kUsage, "--limit: got --max-eval-samples too; wanted one of them");
    const bool is_count = *options.limit >= 1 && *options.limit == std::floor(*options.limit);
    if (!(*options.limit > 0 && *options.limit < 1) && !(is_count && *options.limit <= kMost))
      throw Error(Fault::kUsage,
                  "--limit: got {}, wanted a whole number, or a share above 0 and "
                  "below 1",
                  *options.limit);
  }
  if (options.chat.apply_chat_template) {
    const bool is_typed = !options.prompts.prompt_type.empty();
    if (is_typed || !options.prompts.instruction_template.empty())
      throw Error(Fault::kUsage, "--apply-chat-template: got --{} too; wanted one of them",
                  is_typed ? "prompt-type" : "instruction-template");
    if (options.chat.multiturn.has_value() && options.protocol != Protocol::kLmEval)
      throw Error(Fault::kUsage,
                  "--fewshot-as-multiturn: works only with --protocol lm-eval; leave it out");
  }
  static_cast<void>(options.chat.variables.json());  // before a model is read
  if (options.chat.apply_chat_template) return;
  const char* flag = nullptr;
  if (!options.chat.variables.text.empty()) flag = "--chat-template-kwargs";
  if (!options.chat.chat_template.empty()) flag = "--chat-template";
  if (options.chat.multiturn.has_value()) flag = "--fewshot-as-multiturn";
  if (flag == nullptr) return;
  throw Error(Fault::kUsage,
              "{}: works only with --apply-chat-template; give it, or leave this out", flag);
}

}  // namespace piton::cli
