#include "tasks/task_file.h"

#include <algorithm>

#include "base/error.h"
#include "base/listed.h"
#include "tasks/answer_rules.h"
#include "tasks/task_scores.h"

namespace piton {
namespace {

TaskKind kind_of(const std::string& word) {
  if (word == "last-word") return TaskKind::kLastWord;
  if (word == "generation") return TaskKind::kGeneration;
  if (word == "perplexity") return TaskKind::kPerplexity;
  if (word == "preference") return TaskKind::kPreference;
  return TaskKind::kMultipleChoice;
}

// Calls `refuse` if the expression cannot be read.
template <typename Refuse>
void check_pattern(const AnswerFilter& filter, const Refuse& refuse) {
  try {
    filtered_answer(filter, "");
  } catch (const Error& error) {
    refuse(error.what());
  }
}

// The texts of a pair have the usual names of fields.
void complete_preference(TaskFields& fields) {
  if (fields.prompt.empty()) fields.prompt = "{prompt}";
  if (fields.chosen.empty()) fields.chosen = "{chosen}";
  if (fields.rejected.empty()) fields.rejected = "{rejected}";
}

}  // namespace

Task read_task_file(const std::filesystem::path& file, Protocol protocol) {
  TaskFields fields;
  OptionSet set;
  set.add("Task", fields);
  set.read_toml(file);
  const auto refuse = [&](const std::string& what) {
    throw Error(Fault::kUsage, "{}: {}", file.string(), what);
  };
  const TaskKind kind = kind_of(fields.kind);
  if (fields.name.empty()) fields.name = file.stem().string();
  const bool compares = kind == TaskKind::kPreference;
  if (!compares && !(fields.chosen + fields.rejected).empty())
    refuse(fmt::format("{}: is for kind = \"preference\", and kind is \"{}\"",
                       fields.chosen.empty() ? "rejected" : "chosen", fields.kind));
  if (compares) complete_preference(fields);
  if (compares && fields.num_shots > 0)
    refuse("num-shots: a pair of kind = \"preference\" has no examples");
  if (!fields.subject_field.empty() && fields.has_subjects)
    refuse("subject-field: got has-subjects too; subjects are either files or a field");
  if (fields.prompt.empty()) refuse("prompt: is missing, wanted a text with {field}");
  if (kind == TaskKind::kMultipleChoice) {
    if (fields.choices.empty() == fields.choices_field.empty())
      refuse("choices: wanted either choices or choices-field");
    if (fields.answer.empty()) refuse("answer: is missing, wanted the right choice");
    if (!fields.answer_labels.empty() && !fields.choices.empty() &&
        fields.answer_labels.size() != fields.choices.size())
      refuse(fmt::format("answer-labels: got {} labels of {} choices", fields.answer_labels.size(),
                         fields.choices.size()));
  } else if (!fields.choices.empty() || !fields.choices_field.empty()) {
    refuse(fmt::format("choices: are for kind = \"multiple-choice\", and kind is \"{}\"",
                       fields.kind));
  }
  if (kind == TaskKind::kLastWord && fields.answer.empty())
    refuse("answer: is missing, wanted the word that follows the prompt");
  if (kind == TaskKind::kGeneration) {
    if (fields.answer.empty()) refuse("answer: is missing, wanted the right text");
    if (fields.max_new_tokens < 1)
      refuse(fmt::format("max-new-tokens: got {}, wanted 1 or more", fields.max_new_tokens));
  }
  if (kind == TaskKind::kPerplexity && fields.num_shots > 0)
    refuse("num-shots: a text of kind = \"perplexity\" has no examples");
  const std::vector<std::string> known = metrics_of(kind);
  if (fields.metrics.empty()) fields.metrics = known;
  for (const std::string& metric : fields.metrics) {
    if (std::find(known.begin(), known.end(), metric) == known.end())
      refuse(fmt::format("metrics: got \"{}\", wanted one of {}", metric, listed(known)));
  }
  Task task{.name = fields.name, .protocol = protocol, .kind = kind};
  task.splits = fields.splits;
  if (!compares) task.shot_splits = fields.shot_splits;
  task.has_subjects = fields.has_subjects;
  task.subject_field = fields.subject_field;
  task.columns = fields.columns;
  task.description = fields.description;
  task.prompt = fields.prompt;
  task.choices = compares ? std::vector{fields.chosen, fields.rejected} : fields.choices;
  task.choices_field = fields.choices_field;
  task.answer =
      kind == TaskKind::kPerplexity && fields.answer.empty() ? fields.prompt : fields.answer;
  task.answer_labels = fields.answer_labels;
  task.answer_delimiter = fields.answer_delimiter;
  task.shot_delimiter = fields.shot_delimiter;
  task.num_shots = fields.num_shots;
  task.random_shots = fields.random_shots;
  task.metrics = fields.metrics;
  if (kind == TaskKind::kGeneration) {
    task.max_new_tokens = fields.max_new_tokens;
    task.stop = fields.stop;
    task.filters = {{.pattern = fields.answer_pattern, .last = fields.last_match}};
    if (fields.answer_pattern.empty())
      task.filters.front().extract = stripped_answer;
    else
      check_pattern(task.filters.front(), refuse);
  }
  return task;
}

}  // namespace piton
