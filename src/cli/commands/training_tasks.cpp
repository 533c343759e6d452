#include "cli/commands/training_tasks.h"

#include <algorithm>

#include "base/error.h"
#include "base/options/option_range.h"
#include "evaluate/evaluation.h"
#include "evaluate/evaluation_requests.h"
#include "evaluate/evaluation_results.h"
#include "generate/batched_engine.h"
#include "generate/generator.h"
#include "generate/stop_words.h"
#include "session/session.h"
#include "tasks/task_table.h"

namespace piton::cli {
namespace {

constexpr TaskFlags kTrainingFlags = {.tasks = "--eval-tasks",
                                      .paths = "--eval-tasks-data-path",
                                      .protocol = "",
                                      .num_shots = "",
                                      .few_shot_path = ""};

// How a run reads texts.
class RunTexts final : public TextReader {
 public:
  explicit RunTexts(const TaskTexts& texts) : texts_(texts) {}

  const Tokenizer& tokenizer() const override { return texts_.tokenizer; }
  bool adds_special_tokens() const override { return texts_.special_tokens.add; }
  std::int64_t longest_sequence() const override { return texts_.sequence; }
  bool reads_more_if_asked() const override { return true; }

 private:
  const TaskTexts& texts_;
};

// The model of a session in training, as an evaluation needs it.
class TrainedModel final : public EvaluatedModel {
 public:
  explicit TrainedModel(const TaskModel& model)
      : model_(model),
        texts_(model.texts),
        inference_(model.session.context(false), model.session.pipeline(), model.session.mesh(),
                   model.session.settings().model),
        engine_(make_batched_engine(inference_, {.texts = model.batch_size})) {}

  const Tokenizer& tokenizer() const override { return texts_.tokenizer(); }
  bool adds_special_tokens() const override { return texts_.adds_special_tokens(); }
  std::int64_t longest_sequence() const override { return texts_.longest_sequence(); }
  bool reads_more_if_asked() const override { return texts_.reads_more_if_asked(); }

  std::vector<ContinuationScore> score(std::span<const ContinuationRequest> requests) override {
    return score_continuations(*engine_, requests);
  }
  std::int64_t computed_tokens() const override { return engine_->counts().computed_tokens; }
  std::vector<std::string> generate(std::span<const std::vector<std::int32_t>> prompts,
                                    const TextEnd& end, const AnswerDraws& draws) override {
    const DecodeOptions plain{.skip_special_tokens = true};
    std::vector<StreamDecoder> decoders(prompts.size(), StreamDecoder(tokenizer(), plain));
    std::vector<StopWords> stops(prompts.size(), StopWords(end.stop));
    std::vector<std::string> texts(prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) decoders[i].start_after(prompts[i]);
    const PromptBatch batch{.ids = prompts, .draws = draws.draws, .ends = model_.ends};
    generate_batch(*engine_, batch, draws.sampling.options(end.max_new_tokens),
                   [&](std::size_t i, const GeneratedToken& token) {
                     texts[i] += stops[i].push(decoders[i].push(token.id));
                     return !stops[i].found();
                   });
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      if (stops[i].found()) continue;
      texts[i] += stops[i].push(decoders[i].finish());
      texts[i] += stops[i].finish();
    }
    return texts;
  }

 private:
  const TaskModel& model_;
  RunTexts texts_;
  Inference inference_;
  std::unique_ptr<DecodingEngine> engine_;  // of these weights: it remembers what it read
};

// The samples of a task that may have an answer of more than `sequence` tokens: those of as many
// bytes. Few have, so that a run does not begin by encoding whole tasks.
TaskData with_long_answers(const TaskData& data, std::int64_t sequence) {
  constexpr std::int64_t kAdded = 8;  // tokens of a text that are no part of it
  TaskData some{.task = data.task, .num_shots = data.num_shots, .is_chat = data.is_chat};
  for (const TaskSample& sample : data.samples) {
    if (std::ranges::any_of(sample.continuations, [&](const std::string& one) {
          return std::ssize(one) + kAdded > sequence;
        }))
      some.samples.push_back(sample);
  }
  return some;
}

class LoadedTasks final : public TaskEvaluator {
 public:
  explicit LoadedTasks(std::vector<TaskData> tasks) : tasks_(std::move(tasks)) {}

  void check(const TaskTexts& texts) const override {
    for (const TaskData& data : tasks_) {
      if (data.task.max_new_tokens >= texts.sequence)
        throw Error(Fault::kUsage,
                    "--eval-tasks: {} generates up to {} tokens, but --seq-length is {}; evaluate "
                    "checkpoints with piton eval --max-new-tokens N",
                    data.task.name, data.task.max_new_tokens, texts.sequence);
      make_requests(RunTexts(texts), with_long_answers(data, texts.sequence), requests_of(data));
    }
  }

  std::vector<TaskFigure> evaluate(const TaskModel& model) override {
    TrainedModel evaluated(model);
    SilentProgress silent;
    std::vector<TaskFigure> figures;
    for (const TaskData& data : tasks_) {
      const EvaluationRules rules{.requests = requests_of(data), .batch_size = model.batch_size};
      const TaskEvaluation evaluation = evaluate_task(evaluated, data, rules, silent);
      const std::vector<GroupScore> groups = scores_of(evaluation);  // the first is the whole task
      for (const MetricValue& value : groups.front().values)
        figures.push_back({data.task.name + "," + value.metric, value.value});
    }
    return figures;
  }

 private:
  static RequestRules requests_of(const TaskData& data) {
    return {.max_new_tokens = data.task.max_new_tokens};
  }

  std::vector<TaskData> tasks_;
};

// "a,b" "c" -> a, b, c.
std::vector<std::string> names_in(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const std::string& word : words) {
    for (std::size_t at = 0; at <= word.size();) {
      const std::size_t end = std::min(word.find(',', at), word.size());
      if (end > at) names.push_back(word.substr(at, end - at));
      at = end + 1;
    }
  }
  return names;
}

}  // namespace

std::unique_ptr<TaskEvaluator> make_task_evaluator(const TaskEvaluationOptions& options) {
  if (options.tasks.empty()) {
    if (!options.paths.empty() || options.samples)
      throw Error(Fault::kUsage, "--eval-tasks: not given; wanted tasks for --eval-tasks-{}",
                  options.paths.empty() ? "samples" : "data-path");
    return nullptr;
  }
  check_range("--eval-tasks-interval", options.interval, 1);
  if (options.samples) check_range("--eval-tasks-samples", *options.samples, 1);
  if (options.paths.empty())
    throw Error(Fault::kUsage,
                "--eval-tasks-data-path: not given; wanted the folder of the questions");
  std::vector<TaskData> tasks;
  for (const std::string& name : names_in(options.tasks)) {
    const Task task = find_task(name, {.flags = kTrainingFlags});
    if (task.program != nullptr)
      throw Error(Fault::kUsage,
                  "--eval-tasks: {} runs programs that the model writes; evaluate checkpoints with "
                  "piton eval",
                  task.name);
    if (task.kind == TaskKind::kPreference)
      throw Error(Fault::kUsage,
                  "--eval-tasks: {} compares rewards; evaluate checkpoints of a reward model with "
                  "piton eval",
                  task.name);
    for (const TaskData& other : tasks) {
      if (other.task.name == task.name)
        throw Error(Fault::kUsage, "--eval-tasks: {} is given twice", task.name);
    }
    tasks.push_back(load_task(
        task, {.flags = kTrainingFlags, .paths = options.paths, .max_samples = options.samples}));
  }
  return std::make_unique<LoadedTasks>(std::move(tasks));
}

}  // namespace piton::cli
