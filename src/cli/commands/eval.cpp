// piton eval: how well a model answers the questions of a task.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "api/model.h"
#include "base/files/files.h"
#include "base/options/option_range.h"
#include "cli/command.h"
#include "cli/commands/continuation.h"
#include "cli/commands/model_chat_template.h"
#include "cli/commands/model_to_load.h"
#include "cli/compatibility/evaluation_flags.h"
#include "cli/launch.h"
#include "comm/part_of_world.h"
#include "evaluate/code_tests.h"
#include "evaluate/evaluation_results.h"
#include "tasks/chat_prompts.h"
#include "tasks/task_table.h"
#include "text/chat/turn_ends.h"

namespace piton::cli {
namespace {

namespace fs = std::filesystem;

// Prompts that MindSpeed-LLM alone has.
struct MindSpeedPrompts {
  bool alternative_prompt = false;
  std::string prompt_type;
  std::string language = "en";
  std::int64_t seed = 1234;

  bool any() const { return alternative_prompt || !prompt_type.empty(); }

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(
        Option{
            "alternative-prompt",
            "mindspeed: mmlu with the subject in every question, and the letter found in an answer "
            "of up to 128 tokens"},
        alternative_prompt);
    v(Option{"prompt-type",
             "mindspeed: mmlu as a conversation, by the template of a fine-tuned model (as "
             "--chat-template)",
             {.placeholder = "NAME"}},
      prompt_type);
    v(Option{"eval-language",
             "with --prompt-type: the words around the questions",
             {.choices = {"en", "zh"}}},
      language);
    v(Option{"seed", "with --prompt-type: draws the examples", {.placeholder = "N"}}, seed);
  }
};

struct EvalOptions {
  ModelToLoad model;
  std::vector<std::string> tasks;
  std::vector<std::string> paths;
  Protocol protocol = Protocol::kLmEval;
  std::optional<std::int64_t> num_shots;
  std::optional<std::int64_t> max_samples;
  std::optional<double> limit;
  std::string few_shot_path;
  std::optional<std::int64_t> max_new_tokens;
  bool strict_lambada = false;
  MindSpeedPrompts prompts;
  std::int64_t overlapping_eval = 0;
  std::int64_t batch_size = 8;
  std::optional<std::int64_t> sequence;
  std::string save_results;
  bool apply_chat_template = false;
  std::string chat_template;
  std::optional<bool> multiturn;
  bool runs_code = false;
  SpecialTokensOptions special_tokens;
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    model.visit(v);
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
    v(Option{"limit",
             "the same as lm-evaluation-harness has it: a number of questions, or below 1 a share "
             "of each subject",
             {.placeholder = "N"}},
      limit);
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
    prompts.visit(v);
    v(Option{"overlapping-eval",
             "wikitext: tokens by which windows of the text advance (0: windows do not overlap)"},
      overlapping_eval);
    v(Option{"batch-size",
             "number of texts that are read or generated at once",
             {.aliases = {"evaluation-batch-size"}}},
      batch_size);
    v(Option{"seq-length",
             "most tokens that are read at once; longer prompts are cut on the left (default: as "
             "many as the model reads)",
             {.placeholder = "N"}},
      sequence);
    v(Option{"save-results",
             "folder for results.json and TASK.jsonl, a line a question; a killed evaluation "
             "continues there",
             {.placeholder = "DIR"}},
      save_results);
    v(Option{"apply-chat-template",
             "lm-eval: ask by the chat template of the model; the description of a task is the "
             "system message"},
      apply_chat_template);
    v(Option{"chat-template",
             "for --apply-chat-template: file of a chat template in Jinja, the name of one of the "
             "model's, or one of --prompt-type (default: the model's own)",
             {.placeholder = "FILE"}},
      chat_template);
    v(Option{"fewshot-as-multiturn",
             "with --apply-chat-template: each example is a question and an answer of the "
             "conversation (default: so it is, unless the examples are one written text)",
             {.negation = "no-fewshot-as-multiturn"}},
      multiturn);
    v(
        Option{
            "allow-code-execution",
            "humaneval: run the programs that the model writes, in a sandbox (docs/evaluation.md)"},
        runs_code);
    special_tokens.visit(v);
    v(Option{"json", "print the JSON of results.json instead of the table"}, json);
  }
};

// A loaded model, as an evaluation needs it.
class LoadedModel final : public EvaluatedModel {
 public:
  struct Rules {
    bool special_tokens = true;
    std::optional<std::int64_t> sequence;  // most tokens at once; absent: the model's
    std::vector<std::string> ends;         // words that end every generated text
  };
  LoadedModel(Model& model, Rules rules) : model_(model), rules_(std::move(rules)) {}

  const Tokenizer& tokenizer() const override { return model_.require_tokenizer(); }
  bool adds_special_tokens() const override { return rules_.special_tokens; }
  std::int64_t longest_sequence() const override {
    const std::int64_t most = model_.config().max_positions;
    return std::min(most, rules_.sequence.value_or(most));
  }

  std::vector<ContinuationScore> score(std::span<const ContinuationRequest> requests) override {
    return model_.score_continuations(requests);
  }
  std::int64_t computed_tokens() const override { return model_.counts().computed_tokens; }
  std::vector<std::string> generate(std::span<const std::vector<std::int32_t>> prompts,
                                    const TextEnd& end) override {
    const SamplingOptions sampling{.max_new_tokens = end.max_new_tokens, .greedy = true};
    std::vector<Prompt> texts;
    for (const auto& ids : prompts) texts.push_back({.text = "", .ids = ids});
    const BeamOptions no_beams;
    std::vector<std::string> stop = end.stop;
    stop.insert(stop.end(), rules_.ends.begin(), rules_.ends.end());
    const Continuer continuer(model_, sampling, no_beams, stop);
    std::vector<std::string> out;
    for (auto& one : continuer.run(texts, [](const std::string&) {}))
      out.push_back(std::move(one.front().text));
    return out;
  }

 private:
  Model& model_;
  Rules rules_;
};

// The groups of ranks that hold a model each, and this rank's. Every group answers its share of the
// requests.
class Replicas {
 public:
  Replicas(World& world, const InferenceOptions& layout) : world_(world), size_(world.size()) {
    const std::int64_t model = std::int64_t{layout.tensor} * layout.pipeline;
    // Another number is refused where the model is loaded. Under ZeRO-3 all ranks hold one model.
    if (layout.zero_stage == 0 && model >= 1 && size_ % model == 0) size_ = static_cast<int>(model);
    if (size_ == world.size()) return;
    everyone_ = make_group_of_all(world, "evaluation");
    part_ = make_part_of_world(world, world.rank() / size_ * size_, size_);
  }

  // Only the first model's ranks report what they load.
  Machine machine_of_model(const Machine& whole) {
    Log& log = world_.rank() < size_ ? whole.log : silent_;
    return {part_ ? *part_ : world_, whole.device, whole.kernels,  whole.arena, whole.stream,
            whole.threads,           log,          whole.sections, whole.peak};
  }
  RequestShares shares() const {
    return {.everyone = everyone_.get(),
            .index = world_.rank() / size_,
            .count = world_.size() / size_,
            .leads = world_.rank() % size_ == 0};
  }

 private:
  World& world_;
  int size_;  // ranks of a model
  std::unique_ptr<Communicator> everyone_;
  std::unique_ptr<World> part_;
  SilentLog silent_;
};

// Both ways to take a part of the questions.
TaskDataOptions data_options(const EvalOptions& options) {
  TaskDataOptions data{.paths = options.paths,
                       .num_shots = options.num_shots,
                       .max_samples = options.max_samples,
                       .few_shot_path = options.few_shot_path,
                       .seed = static_cast<std::uint32_t>(options.prompts.seed)};
  if (!options.limit) return data;
  if (*options.limit < 1)
    data.sample_share = options.limit;
  else
    data.max_samples = static_cast<std::int64_t>(*options.limit);
  return data;
}

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
  if (options.apply_chat_template && options.protocol != Protocol::kLmEval)
    throw Error(Fault::kUsage,
                "--apply-chat-template: works only with --protocol lm-eval; leave it out");
  if (!options.apply_chat_template &&
      (options.multiturn.has_value() || !options.chat_template.empty()))
    throw Error(Fault::kUsage,
                "{}: works only with --apply-chat-template; give it, or leave this out",
                options.multiturn.has_value() ? "--fewshot-as-multiturn" : "--chat-template");
}

bool runs_programs(const TaskData& data) { return data.task.program != nullptr; }

// Everything that can be wrong with tasks and their files is found before the model is loaded.
std::vector<TaskData> load_tasks(const EvalOptions& options) {
  std::vector<TaskData> all;
  for (const std::string& name : options.tasks) {
    Task task = find_task(name, {.protocol = options.protocol,
                                 .strict_lambada = options.strict_lambada,
                                 .alternative_prompt = options.prompts.alternative_prompt,
                                 .chat_prompt = !options.prompts.prompt_type.empty(),
                                 .chinese = options.prompts.language == "zh"});
    for (const TaskData& other : all) {
      if (other.task.name == task.name)
        throw Error(Fault::kUsage, "--task: {} is given twice", task.name);
    }
    if (task.program != nullptr && !options.runs_code)
      throw Error(Fault::kUsage,
                  "--task: {} runs programs that the model writes; give --allow-code-execution, "
                  "which runs them in a sandbox, or leave the task out",
                  task.name);
    if (options.max_new_tokens && task.kind == TaskKind::kGeneration)
      task.max_new_tokens = *options.max_new_tokens;
    if (!options.prompts.prompt_type.empty() && !task.asks_in_chat)
      throw Error(Fault::kUsage, "--prompt-type: works only with mmlu; evaluate {} without it",
                  task.name);
    all.push_back(load_task(task, data_options(options)));
  }
  const auto has = [&](TaskKind kind) {
    return std::any_of(all.begin(), all.end(),
                       [&](const TaskData& data) { return data.task.kind == kind; });
  };
  const bool has_variant = std::any_of(
      all.begin(), all.end(), [](const TaskData& data) { return !data.task.variant.empty(); });
  if (options.prompts.alternative_prompt && !has_variant)
    throw Error(Fault::kUsage, "--alternative-prompt: works only with mmlu; leave it out");
  if (options.overlapping_eval != 0 && !has(TaskKind::kPerplexity))
    throw Error(Fault::kUsage, "--overlapping-eval: works only with wikitext; leave it out");
  if (options.runs_code && std::none_of(all.begin(), all.end(), runs_programs))
    throw Error(Fault::kUsage, "--allow-code-execution: no --task runs programs; leave it out");
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

// Asks all tasks by the chat template. Returns the words that end an answer.
std::vector<std::string> make_chats(std::vector<TaskData>& tasks, const Model& model,
                                    const EvalOptions& options) {
  const ChatTemplate chat_template = model_chat_template(
      model,
      options.prompts.prompt_type.empty() ? options.chat_template : options.prompts.prompt_type,
      options.model.load);
  for (TaskData& data : tasks)
    make_chat_prompts(data, chat_template,
                      {.multiturn = options.multiturn.value_or(data.task.shot_texts.empty())});
  std::vector<std::string> ends;
  for (const std::int32_t id : turn_ends(chat_template, model.require_tokenizer()))
    ends.push_back(model.require_tokenizer().piece(id));
  return ends;
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
  EvaluationFlags others;
  set.set_foreign(&others);
  refuse_more_arguments(invocation.parse(set, general));
  // Only MindSpeed-LLM distinguishes the last word from the last token, and has several prompts.
  if ((options.strict_lambada || options.prompts.any()) && !set.given("protocol"))
    options.protocol = Protocol::kMindSpeed;
  if (invocation.leads) {
    others.report(invocation.log);
    if (set.given("seed") && options.prompts.prompt_type.empty())
      invocation.log.info("--seed: no meaning here: answers are greedy, as there");
  }
  std::vector<TaskData> tasks;
  std::optional<PythonSandbox> sandbox;
  invocation.together([&] {
    check_options(options);
    tasks = load_tasks(options);
    if (options.runs_code && invocation.leads) sandbox.emplace();
  });
  Engine engine(engine_options(general), invocation.log);
  Replicas replicas(engine.world(), layout);
  const Machine machine = replicas.machine_of_model(engine.machine());
  const auto model =
      Model::load(machine, options.model.load, tokenizer, layout, options.model.lora_load);
  others.check(model->config(), options.model.load);
  std::vector<std::string> ends;
  if (options.apply_chat_template || !options.prompts.prompt_type.empty())
    ends = make_chats(tasks, *model, options);
  const SpecialTokensRule rule = rule_of(options.special_tokens, model->special_tokens());
  const std::string said = describe_rule(rule, model->require_tokenizer());
  const bool leads = engine.world().rank() == 0;
  if (!said.empty() && leads) invocation.log.info(said);
  LoadedModel evaluated(
      *model, {.special_tokens = rule.add, .sequence = options.sequence, .ends = std::move(ends)});
  if (!options.save_results.empty() && leads) create_folders(options.save_results);

  std::vector<TaskEvaluation> evaluations;
  std::vector<EvaluationRules> rules;
  for (TaskData& data : tasks) {
    rules.push_back(rules_for(options, data.task, leads));
    rules.back().shares = replicas.shares();
    evaluations.push_back(
        evaluate_task(evaluated, std::move(data), rules.back(), invocation.progress));
    if (leads) report_counts(evaluations.back(), invocation.log);
  }
  if (!leads) return 0;
  for (TaskEvaluation& one : evaluations) {
    if (runs_programs(one.data)) run_code_tests(one, *sandbox, invocation.progress);
  }
  const nlohmann::ordered_json results = results_json(
      evaluations,
      {.model = options.model.load, .tokenizer = evaluated.tokenizer().content_hash()});
  if (!options.save_results.empty()) {
    save(options, evaluations, results);
    for (const EvaluationRules& one : rules) forget_journal(one);
  }
  const std::string text = options.json ? results.dump() + "\n" : results_table(evaluations);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace piton::cli
