// piton eval: how well a model answers the questions of a task.
#include <algorithm>
#include <filesystem>

#include "adapters/base_hash.h"
#include "api/model.h"
#include "base/files/files.h"
#include "checkpoint/collective.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/commands/continuation.h"
#include "cli/commands/eval_options.h"
#include "cli/commands/model_chat_template.h"
#include "cli/compatibility/inference_flags.h"
#include "cli/launch.h"
#include "comm/part_of_world.h"
#include "evaluate/code_tests.h"
#include "evaluate/evaluation_results.h"
#include "model_files/opened_adapter.h"
#include "model_files/opened_model.h"
#include "tasks/chat_prompts.h"
#include "tasks/needlebench.h"
#include "tasks/task_table.h"
#include "text/chat/turn_ends.h"

namespace piton::cli {
namespace {

namespace fs = std::filesystem;

// A loaded model, as an evaluation needs it.
class LoadedModel final : public EvaluatedModel {
 public:
  struct Rules {
    bool special_tokens = true;
    std::optional<std::int64_t> sequence;  // most tokens at once; absent: the model's
    std::vector<std::string> ends;         // words that end every generated text
    std::int64_t batch_size = 1;           // texts that are scored at once
  };
  LoadedModel(Model& model, Rules rules)
      : model_(model),
        rules_(std::move(rules)),
        scorer_(model.config().gives_rewards() ? nullptr
                                               : model.make_engine({.texts = rules_.batch_size})) {}

  const Tokenizer& tokenizer() const override { return model_.require_tokenizer(); }
  bool adds_special_tokens() const override { return rules_.special_tokens; }
  std::int64_t longest_sequence() const override {
    const std::int64_t most = model_.config().max_positions;
    return std::min(most, rules_.sequence.value_or(most));
  }
  bool reads_more_if_asked() const override {
    return longest_sequence() < model_.config().max_positions;
  }

  std::vector<ContinuationScore> score(std::span<const ContinuationRequest> requests) override {
    return score_continuations(*scorer_, requests);
  }
  std::int64_t computed_tokens() const override {
    return scorer_ ? scorer_->counts().computed_tokens : 0;
  }
  std::vector<double> rewards(std::span<const std::vector<std::int32_t>> texts) override {
    return model_.rewards(texts);
  }
  std::vector<std::string> generate(std::span<const std::vector<std::int32_t>> prompts,
                                    const TextEnd& end, const AnswerDraws& draws) override {
    const SamplingOptions sampling = draws.sampling.options(end.max_new_tokens);
    std::vector<Prompt> texts;
    for (const auto& ids : prompts) texts.push_back({.text = "", .ids = ids});
    for (std::size_t i = 0; i < draws.draws.size(); ++i) texts[i].first_draw = draws.draws[i];
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
  std::unique_ptr<DecodingEngine> scorer_;  // null: a reward model
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

// Options of needlebench, which are wrong without it.
void check_needle_options(const OptionSet& set, const std::vector<TaskData>& tasks) {
  const auto has_needles = [](const TaskData& data) { return data.task.has_needles; };
  if (std::any_of(tasks.begin(), tasks.end(), has_needles)) return;
  for (const char* name :
       {"needle-lengths", "needle-depths", "needle-repeats", "needle-buffer", "needle-languages"}) {
    if (set.given(name))
      throw Error(Fault::kUsage, "--{}: works only with needlebench; leave it out", name);
  }
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
    if (task.kind == TaskKind::kGeneration) {
      task.reasoning_end = options.reasoning_end;
      task.stop.insert(task.stop.end(), options.stop.begin(), options.stop.end());
    }
    if (task.program != nullptr) task.pass_at = pass_at(options);
    if (!options.prompts.prompt_type.empty() && !task.asks_in_chat)
      throw Error(Fault::kUsage, "--prompt-type: works only with mmlu; evaluate {} without it",
                  task.name);
    if (options.chat.apply_chat_template && (task.has_needles || task.kind == TaskKind::kLastToken))
      throw Error(Fault::kUsage,
                  "--apply-chat-template: {} is not asked as a question; evaluate it without",
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
  if (!options.reasoning_end.empty() && !has(TaskKind::kGeneration))
    throw Error(Fault::kUsage, "--think-end-token: no --task has generated answers; leave it out");
  if (options.sampling.draws() && std::none_of(all.begin(), all.end(), runs_programs))
    throw Error(Fault::kUsage, "--num-samples: no --task runs programs; leave it out");
  return all;
}

EvaluationRules rules_for(const EvalOptions& options, const Task& task, bool leads) {
  EvaluationRules rules{.requests = {.max_new_tokens = task.max_new_tokens},
                        .batch_size = options.batch_size,
                        .writes = leads};
  if (task.kind == TaskKind::kPerplexity)
    rules.requests.overlapping_eval = options.overlapping_eval;
  if (task.program != nullptr) {
    rules.sampling = options.sampling;
    rules.sampling.seed = static_cast<std::uint64_t>(options.prompts.seed);
    rules.requests.answers = rules.sampling.answers;
  }
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

bool compares_rewards(const TaskData& data) { return data.task.kind == TaskKind::kPreference; }

// Throws Error(kUsage) for a task that asks the model what it does not say.
void check_kinds(const std::vector<TaskData>& tasks, const Model& model, const std::string& load) {
  const bool gives_rewards = model.config().gives_rewards();
  for (const TaskData& data : tasks) {
    if (compares_rewards(data) == gives_rewards) continue;
    if (gives_rewards)
      throw Error(Fault::kUsage,
                  "--task: {} needs probabilities of tokens, and {} gives rewards; wanted "
                  "rewardbench, or a file with kind = \"preference\"",
                  data.task.name, load);
    throw Error(Fault::kUsage,
                "--task: {} compares rewards, and {} predicts tokens; wanted a reward model, as "
                "piton finetune --stage rm makes",
                data.task.name, load);
  }
}

ChatTemplate template_of(const Model& model, const EvalOptions& options) {
  const std::string& named = options.prompts.prompt_type;
  ChatTemplate chat_template = model_chat_template(
      model, named.empty() ? options.chat.chat_template : named, options.model.load);
  options.chat.variables.set_in(chat_template);
  return chat_template;
}

// Asks all tasks by the chat template. Returns the words that end an answer.
std::vector<std::string> make_chats(std::vector<TaskData>& tasks, const Model& model,
                                    const EvalOptions& options) {
  const ChatTemplate chat_template = template_of(model, options);
  for (TaskData& data : tasks) {
    const bool has_turns = data.task.protocol == Protocol::kLmEval || data.task.asks_in_chat;
    const bool usual = has_turns && data.task.shot_texts.empty();
    make_chat_prompts(data, chat_template, {.multiturn = options.chat.multiturn.value_or(usual)});
  }
  std::vector<std::string> ends;
  for (const std::int32_t id : turn_ends(chat_template, model.require_tokenizer()))
    ends.push_back(model.require_tokenizer().piece(id));
  return ends;
}

// Of the model without adapters, and of these. All ranks read their share.
void hash_weights(const ModelToLoad& model, World& world, EvaluatedSource& source) {
  const ModelPaths paths = model_paths(model.load, model.lora_load);
  const auto ranks = make_group_of_all(world, "hash");
  OpenedModel opened = open_model({.path = paths.base, .ranks = ranks.get()});
  source.model_hash = weights_hash(*opened.source, *ranks);
  if (paths.adapters.empty()) return;
  const OpenedAdapter adapter = open_adapter(paths.adapters, opened, *ranks);
  source.adapters_hash = weights_hash(*adapter.source, *ranks);
}

EvaluatedSource source_of(const EvalOptions& options, const Tokenizer& tokenizer, World& world) {
  const BuildInfo info = build_info();
  EvaluatedSource source{.model = options.model.load,
                         .tokenizer = tokenizer.content_hash(),
                         .version = fmt::format("{} ({})", info.version, info.commit)};
  if (!options.save_results.empty() || options.json) hash_weights(options.model, world, source);
  return source;
}

// Makes the folder of the results. Throws Error(kUsage), on all ranks, if it has results that these
// would replace and that are not of the same evaluation.
void prepare_folder(const EvalOptions& options, const std::vector<PlannedTask>& planned,
                    const EvaluatedSource& source, World& world) {
  if (options.save_results.empty()) return;
  const auto ranks = make_group_of_all(world, "results");
  phase(*ranks, 0, [&] {
    const fs::path file = fs::path(options.save_results) / "results.json";
    if (fs::exists(file)) {
      const std::string other = other_results(read_text_file(file), planned, source);
      if (!other.empty())
        throw Error(Fault::kUsage,
                    "--save-results: {} has results {}; give another folder, or remove that file "
                    "to replace them",
                    file.string(), other);
    }
    create_folders(options.save_results);
  });
}

// Only MindSpeed-LLM distinguishes the last word from the last token, and has several prompts and
// needlebench.
void choose_protocol(EvalOptions& options, const OptionSet& set) {
  const bool asks_needles = std::ranges::count(options.tasks, "needlebench") > 0;
  if ((options.strict_lambada || options.prompts.any() || asks_needles) && !set.given("protocol"))
    options.protocol = Protocol::kMindSpeed;
}

// Command lines of MindSpeed-LLM have these flags, and greedy answers.
void report_unused_flags(const EvalOptions& options, const OptionSet& set,
                         const std::vector<TaskData>& tasks, Log& log) {
  if (options.runs_code && std::none_of(tasks.begin(), tasks.end(), runs_programs))
    log.info("--allow-code-execution: no meaning here: no --task runs programs");
  if (options.sampling.draws()) return;
  for (const std::string& name :
       std::vector<std::string>{"temperature", "top-k", "top-p", "seed"}) {
    if (!set.given(name) || (name == "seed" && !options.prompts.prompt_type.empty())) continue;
    log.info(fmt::format("--{}: no meaning here: answers are greedy, as there", name));
  }
}

void save(const EvalOptions& options, const std::vector<TaskEvaluation>& evaluations,
          const nlohmann::ordered_json& results, const std::string& settings) {
  const fs::path folder = options.save_results;
  write_text_file(folder / "config.toml", settings);
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
  InferenceFlags others(InferenceCommand::kEval, set);
  refuse_more_arguments(invocation.parse(set, general));
  choose_protocol(options, set);
  std::vector<TaskData> tasks;
  std::optional<PythonSandbox> sandbox;
  invocation.together([&] {
    check_options(options);
    tasks = load_tasks(options);
    check_needle_options(set, tasks);
    const bool runs_any = std::any_of(tasks.begin(), tasks.end(), runs_programs);
    if (runs_any && invocation.leads) sandbox.emplace();
  });
  report_unused_flags(options, set, tasks, invocation.log_of_all());
  Engine engine(engine_options(general), invocation.log);
  Replicas replicas(engine.world(), layout);
  const Machine machine = replicas.machine_of_model(engine.machine());
  invocation.together([&] { layout.check(machine.world.size()); });
  const auto model =
      Model::load(machine, options.model.load, tokenizer, layout, options.model.lora_load);
  others.check(model->config(), options.model.load, invocation.log_of_all());
  check_kinds(tasks, *model, options.model.load);
  for (TaskData& data : tasks) {
    if (compares_rewards(data)) make_preference_texts(data, template_of(*model, options));
  }
  std::vector<std::string> ends;
  if (options.chat.apply_chat_template || !options.prompts.prompt_type.empty())
    ends = make_chats(tasks, *model, options);
  const SpecialTokensRule rule = rule_of(options.special_tokens, model->special_tokens());
  const std::string said = describe_rule(rule, model->require_tokenizer());
  const bool leads = engine.world().rank() == 0;
  if (!said.empty() && leads) invocation.log.info(said);
  LoadedModel evaluated(*model, {.special_tokens = rule.add,
                                 .sequence = options.sequence,
                                 .ends = std::move(ends),
                                 .batch_size = options.batch_size});
  std::vector<EvaluationRules> rules;
  std::vector<PlannedTask> planned;
  for (TaskData& data : tasks) {
    if (data.task.has_needles)
      make_needle_samples(data, evaluated.tokenizer(), evaluated.longest_sequence());
    if (const std::string& text = options.prompts.instruction_template; !text.empty())
      put_prompts_into(text, data);
    rules.push_back(rules_for(options, data.task, leads));
    rules.back().shares = replicas.shares();
    check_room(evaluated, data.task, rules.back().requests.max_new_tokens);
    planned.push_back({data, reading_rules(evaluated, rules.back()), rules.back().sampling});
  }
  const EvaluatedSource source = source_of(options, evaluated.tokenizer(), engine.world());
  prepare_folder(options, planned, source, engine.world());

  std::vector<TaskEvaluation> evaluations;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    evaluations.push_back(
        evaluate_task(evaluated, std::move(tasks[i]), rules[i], invocation.progress));
    if (leads) report_counts(evaluations.back(), invocation.log);
  }
  if (!leads) return 0;
  for (TaskEvaluation& one : evaluations) {
    if (runs_programs(one.data)) run_code_tests(one, *sandbox, invocation.progress);
  }
  const nlohmann::ordered_json results = results_json(evaluations, source);
  if (!options.save_results.empty()) {
    save(options, evaluations, results, set.to_toml());
    for (const EvaluationRules& one : rules) forget_journal(one);
  }
  const std::string text = options.json ? results.dump() + "\n" : results_table(evaluations);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace piton::cli
