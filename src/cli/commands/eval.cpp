// piton eval: how well a model answers the questions of a task.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "api/model.h"
#include "base/files/files.h"
#include "base/options/option_range.h"
#include "cli/command.h"
#include "cli/commands/continuation.h"
#include "cli/launch.h"
#include "evaluate/evaluation_results.h"
#include "tasks/task_table.h"

namespace piton::cli {
namespace {

namespace fs = std::filesystem;

struct EvalOptions {
  std::string load;
  std::vector<std::string> tasks;
  std::vector<std::string> paths;
  Protocol protocol = Protocol::kLmEval;
  std::optional<std::int64_t> num_shots;
  std::optional<std::int64_t> max_samples;
  std::string few_shot_path;
  std::optional<std::int64_t> max_new_tokens;
  bool strict_lambada = false;
  std::int64_t overlapping_eval = 0;
  std::int64_t batch_size = 8;
  std::string save_results;
  SpecialTokensOptions special_tokens;
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"load",
             "run, checkpoint, Hugging Face or Megatron folder, or GGUF file of the model",
             {.placeholder = "DIR"}},
      load);
    v(Option{"task",
             "tasks to evaluate (docs/evaluation.md lists them), or TOML files with a task",
             {.placeholder = "TASK"}},
      tasks);
    v(Option{"task-data-path",
             "files or folders with the questions; of several, the last one whose path holds the "
             "task's name",
             {.placeholder = "PATH"}},
      paths);
    v(Option{"protocol", "whose prompts and decisions: of lm-evaluation-harness, or MindSpeed-LLM"},
      Choice(protocol, {{"lm-eval", Protocol::kLmEval}, {"mindspeed", Protocol::kMindSpeed}}));
    v(Option{"num-shots",
             "number of examples before a question (default: as the task)",
             {.aliases = {"num-fewshot"}, .placeholder = "N"}},
      num_shots);
    v(Option{"max-eval-samples",
             "largest number of questions of each subject (default: all)",
             {.placeholder = "N"}},
      max_samples);
    v(Option{"few-shot-path",
             "file or folder with written examples (mindspeed, bbh; default: searched next to the "
             "data)",
             {.placeholder = "PATH"}},
      few_shot_path);
    v(Option{"max-new-tokens",
             "largest number of tokens of a generated answer (default: as the task)",
             {.placeholder = "N"}},
      max_new_tokens);
    v(Option{"strict-lambada", "mindspeed: the whole last word of LAMBADA, not its last token"},
      strict_lambada);
    v(Option{"overlapping-eval",
             "wikitext: tokens by which windows of the text advance (0: windows do not overlap)"},
      overlapping_eval);
    v(Option{"batch-size",
             "number of texts that are read or generated at once",
             {.aliases = {"evaluation-batch-size"}}},
      batch_size);
    v(Option{"save-results",
             "folder for results.json and TASK.jsonl, a line a question; a killed evaluation "
             "continues there",
             {.placeholder = "DIR"}},
      save_results);
    special_tokens.visit(v);
    v(Option{"json", "print the JSON of results.json instead of the table"}, json);
  }
};

// A loaded model, as an evaluation needs it.
class LoadedModel final : public EvaluatedModel {
 public:
  LoadedModel(Model& model, bool special_tokens) : model_(model), special_tokens_(special_tokens) {}

  const Tokenizer& tokenizer() const override { return model_.require_tokenizer(); }
  bool adds_special_tokens() const override { return special_tokens_; }
  std::int64_t longest_sequence() const override { return model_.config().max_positions; }

  std::vector<ContinuationScore> score(std::span<const ContinuationRequest> requests) override {
    return model_.score_continuations(requests);
  }
  std::vector<double> token_log_likelihoods(std::span<const std::int32_t> ids) override {
    return model_.score(ids).log_likelihood;
  }
  std::vector<std::string> generate(std::span<const std::vector<std::int32_t>> prompts,
                                    const TextEnd& end) override {
    const SamplingOptions sampling{.max_new_tokens = end.max_new_tokens, .greedy = true};
    std::vector<Prompt> texts;
    for (const auto& ids : prompts) texts.push_back({.text = "", .ids = ids});
    const BeamOptions no_beams;
    const Continuer continuer(model_, sampling, no_beams, end.stop);
    std::vector<std::string> out;
    for (auto& one : continuer.run(texts, [](const std::string&) {}))
      out.push_back(std::move(one.front().text));
    return out;
  }

 private:
  Model& model_;
  bool special_tokens_;
};

void check_options(const EvalOptions& options) {
  if (options.load.empty())
    throw Error(Fault::kUsage, "--load: no model is named; wanted the folder of a run");
  if (options.tasks.empty()) {
    std::vector<std::string> names;
    for (const Task& task : built_in_tasks(options.protocol)) names.push_back(task.name);
    throw Error(Fault::kUsage, "--task: not given; wanted one or more of {}, or a file NAME.toml",
                fmt::join(names, ", "));
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  check_range("--batch-size", options.batch_size, 1, 4096);
  if (options.num_shots) check_range("--num-shots", *options.num_shots, 0, 1000);
  if (options.max_samples) check_range("--max-eval-samples", *options.max_samples, 1, kMost);
  if (options.max_new_tokens) check_range("--max-new-tokens", *options.max_new_tokens, 1, kMost);
  if (options.strict_lambada && options.protocol == Protocol::kLmEval) {
    throw Error(Fault::kUsage,
                "--strict-lambada: goes with --protocol mindspeed; lm-eval always scores the whole "
                "word; leave it out");
  }
}

// Everything that can be wrong with tasks and their files is found before the model is loaded.
std::vector<TaskData> load_tasks(const EvalOptions& options) {
  std::vector<TaskData> all;
  for (const std::string& name : options.tasks) {
    Task task =
        find_task(name, {.protocol = options.protocol, .strict_lambada = options.strict_lambada});
    for (const TaskData& other : all) {
      if (other.task.name == task.name)
        throw Error(Fault::kUsage, "--task: {} is given twice", task.name);
    }
    if (options.max_new_tokens && task.kind == TaskKind::kGeneration)
      task.max_new_tokens = *options.max_new_tokens;
    all.push_back(load_task(task, {.paths = options.paths,
                                   .num_shots = options.num_shots,
                                   .max_samples = options.max_samples,
                                   .few_shot_path = options.few_shot_path}));
  }
  const auto has = [&](TaskKind kind) {
    return std::any_of(all.begin(), all.end(),
                       [&](const TaskData& data) { return data.task.kind == kind; });
  };
  if (options.overlapping_eval != 0 && !has(TaskKind::kPerplexity))
    throw Error(Fault::kUsage, "--overlapping-eval: goes with wikitext; leave it out");
  if (options.max_new_tokens && !has(TaskKind::kGeneration))
    throw Error(Fault::kUsage, "--max-new-tokens: no --task generates an answer; leave it out");
  return all;
}

EvaluationRules rules_for(const EvalOptions& options, const Task& task, bool leads) {
  EvaluationRules rules{.requests = {.max_new_tokens = task.max_new_tokens},
                        .batch_size = options.batch_size,
                        .writes = leads};
  if (task.kind == TaskKind::kPerplexity)
    rules.requests.overlapping_eval = options.overlapping_eval;
  if (!options.save_results.empty())
    rules.journal = fs::path(options.save_results) / (task.name + ".journal");
  return rules;
}

void report_counts(const TaskEvaluation& evaluation, Log& log) {
  const std::string& task = evaluation.data.task.name;
  if (evaluation.restored > 0)
    log.info(
        fmt::format("{}: {} answers were there from an earlier run", task, evaluation.restored));
  if (evaluation.cut_prompts > 0) {
    log.warning(
        fmt::format("{}: {} prompts are longer than the model reads; they were cut on the left",
                    task, evaluation.cut_prompts));
  }
  if (evaluation.empty_answers > 0)
    log.warning(fmt::format("{}: {} generated answers are empty", task, evaluation.empty_answers));
}

void save(const EvalOptions& options, const std::vector<TaskEvaluation>& evaluations,
          const nlohmann::ordered_json& results) {
  const fs::path folder = options.save_results;
  for (const TaskEvaluation& one : evaluations)
    write_text_file(folder / (one.data.task.name + ".jsonl"), sample_lines(one));
  write_text_file(folder / "results.json", results.dump(2) + "\n");
}

}  // namespace

int run_eval(Invocation& invocation) {
  GeneralOptions general;
  EvalOptions options;
  InferenceOptions layout;
  TokenizerOptions tokenizer;
  OptionSet set;
  set.add("Evaluation", options);
  set.add("Parallelism", layout);
  set.add("Tokenizer", tokenizer);
  refuse_more_arguments(invocation.parse(set, general));
  std::vector<TaskData> tasks;
  invocation.together([&] {
    check_options(options);
    tasks = load_tasks(options);
  });
  Engine engine(engine_options(general), invocation.log);
  const auto model = Model::load(engine.machine(), options.load, tokenizer, layout);
  const SpecialTokensRule rule = rule_of(options.special_tokens, model->special_tokens());
  const std::string said = describe_rule(rule, model->require_tokenizer());
  const bool leads = engine.world().rank() == 0;
  if (!said.empty() && leads) invocation.log.info(said);
  LoadedModel evaluated(*model, rule.add);
  if (!options.save_results.empty() && leads) create_folders(options.save_results);

  std::vector<TaskEvaluation> evaluations;
  std::vector<EvaluationRules> rules;
  for (TaskData& data : tasks) {
    rules.push_back(rules_for(options, data.task, leads));
    evaluations.push_back(
        evaluate_task(evaluated, std::move(data), rules.back(), invocation.progress));
    if (leads) report_counts(evaluations.back(), invocation.log);
  }
  if (!leads) return 0;
  const nlohmann::ordered_json results = results_json(
      evaluations, {.model = options.load, .tokenizer = evaluated.tokenizer().content_hash()});
  if (!options.save_results.empty()) {
    save(options, evaluations, results);
    for (const EvaluationRules& one : rules) forget_journal(one);
  }
  const std::string text = options.json ? results.dump() + "\n" : results_table(evaluations);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace piton::cli
