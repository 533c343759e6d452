// Evaluates the model of a run on tasks while it trains. The command implements it with what is
// above the trainer (evaluate); the caller of a trainer passes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "text/special_tokens.h"
#include "train/sinks/metrics.h"

namespace piton {

class Session;
class Tokenizer;

struct TaskEvaluationOptions {
  std::vector<std::string> tasks;
  std::int64_t interval = 1000;
  std::vector<std::string> paths;
  std::optional<std::int64_t> samples;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"eval-tasks",
             "tasks of piton eval to evaluate the model on while it trains (docs/evaluation.md); "
             "names, or one text with commas",
             {.placeholder = "TASK"}},
      tasks);
    v(Option{"eval-tasks-interval", "iterations between evaluations of --eval-tasks, and the last"},
      interval);
    v(Option{"eval-tasks-data-path",
             "files or folders with the questions of --eval-tasks, as --task-data-path of piton "
             "eval",
             {.placeholder = "PATH"}},
      paths);
    v(Option{"eval-tasks-samples",
             "largest number of questions of each subject of --eval-tasks (default: all)",
             {.placeholder = "N"}},
      samples);
  }
};

// How texts become samples.
struct TaskTexts {
  const Tokenizer& tokenizer;
  SpecialTokensRule special_tokens;
  std::int64_t sequence = 0;  // most tokens of a sample
};

// What an evaluation reads the model with.
struct TaskModel {
  Session& session;
  TaskTexts texts;
  std::vector<std::int32_t> ends;  // of a text
  std::int64_t batch_size = 1;     // samples that are read at once
};

class TaskEvaluator {
 public:
  virtual ~TaskEvaluator() = default;

  // Throws Error(kUsage) or Error(kData) if a task needs longer samples than these.
  virtual void check(const TaskTexts& texts) const = 0;
  // The scores of the weights as they are. Collective over all ranks, which get the same.
  virtual std::vector<TaskFigure> evaluate(const TaskModel& model) = 0;
};

}  // namespace piton
