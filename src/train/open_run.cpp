#include "train/open_run.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "adapters/base_hash.h"
#include "base/files/files.h"
#include "base/options/option_range.h"
#include "checkpoint/collective.h"
#include "model_files/chat_templates.h"
#include "model_files/model_format.h"
#include "model_files/opened_adapter.h"
#include "session/run_sections.h"
#include "train/kernel_difference.h"
#include "train/recompute_choice.h"
#include "train/run/adapter_run.h"
#include "train/run/checkpoint_choice.h"
#include "train/run/corpus_rule.h"
#include "train/run/foreign_model.h"
#include "train/run/memory_check.h"
#include "train/run/option_lines.h"
#include "train/run/resume_rules.h"
#include "train/run/run_start.h"
#include "train/run/run_tokenizer.h"
#include "train/run_length.h"
#include "train/run_stage.h"
#include "train/trace/run_trace.h"

namespace piton {
namespace {

constexpr std::int64_t kSamplesKept = 3;

class RunOpener {
 public:
  RunOpener(const RunOpening& opening, OpenedRun& run)
      : machine_(opening.machine),
        everyone_(opening.everyone),
        sinks_(opening.sinks),
        inputs_(opening.inputs),
        timers_(opening.timers),
        run_(run),
        given_(run.settled) {}

  void open() {
    if (given_.loop.dry_run) {
      throw Error(Fault::kUsage, "--dry-run: is for piton pretrain; a program leaves it out");
    }
    check_before_allocation();
    take_folder(/*may_create=*/false);
    open_data();
    take_folder(/*may_create=*/true);
    load_or_draw();
    if (!run_.done()) {
      say_options();
      if (!given_.loop.skip_train) warn_of_zero_rate();
    }
    if (!run_.settled.loop.save.empty()) run_.claim = FolderClaim::kOwned;
    if (!given_.loop.skip_train) run_.saves->prepare();
    start_folder();
    open_figures();
  }

  void check() {
    given_.data.data_cache_path.reset();  // it would be written to
    check_before_allocation();
    open_data();
    say_plan();
  }

 private:
  void together(const std::function<void()>& work) { phase(everyone_, std::nullopt, work); }
  void say(const std::string& line) {
    if (!line.empty()) sinks_.info(line);
  }

  void check_before_allocation();
  void continue_started_run();
  void open_tokenizer_and_plan();
  void choose_recomputation();
  void settle();
  void settle_found(const RunLength& found);
  void make_schedules();
  void take_folder(bool may_create);
  void open_data();
  void open_prompts();
  void open_questions();
  void load_or_draw();
  void start_adapters();
  std::optional<std::int64_t> load(CheckpointChoice& choice);
  void load_one(const std::filesystem::path& checkpoint, bool* damaged);
  void make_saves(std::optional<std::int64_t> saved_iteration);
  void start_folder();
  void open_figures();
  void say_model();
  void say_options();
  void warn_of_zero_rate();
  void say_plan();

  const Machine& machine_;
  Communicator& everyone_;
  RunSinks& sinks_;
  const TrainerInputs& inputs_;
  RunTimers* timers_;  // may be null
  OpenedRun& run_;
  PretrainOptions given_;               // completed by what --load is
  std::optional<OpenedModel> foreign_;  // --load is a folder of another program
  RunTemplates templates_;
  LoopOptions source_;         // of the run's state: of adapters other than of their base
  bool same_command_ = false;  // that started the run from another program's folder, again
};

void RunOpener::check_before_allocation() {
  continue_started_run();
  settle_stage(given_, everyone_, sinks_);
  together([&] { open_tokenizer_and_plan(); });
  choose_recomputation();
  if (inputs_.planner != nullptr) {
    say(fit_memory(given_.lora, run_.plan.session, [&] {
      MemoryCounts need;
      together([&] { need = inputs_.planner->plan_memory(run_.plan); });
      return memory_of_ranks(machine_, need, everyone_);
    }));
  }
  say(kernel_difference(machine_.kernels, everyone_));
  run_.mesh = std::make_unique<Mesh>(machine_.world, run_.plan.mesh);
}

void RunOpener::continue_started_run() {
  start_from_pretrained(given_, everyone_, sinks_);
  LoopOptions& loop = given_.loop;
  const bool adapters = given_.lora.given();
  together([&] {
    check_adapter_options(given_);
    check_upcycling(loop);
  });
  if (loop.upcycles) loop.starts_from_load = true;
  const std::string found = found_by_first(everyone_, [&] {
    return (adapters ? checkpoint_of_started_adapters(loop) : checkpoint_of_started_run(loop))
        .value_or("")
        .string();
  });
  if (found.empty()) {
    if (!loop.starts_from_load) return;
    const ModelFormat format = model_format_of(loop.load);
    loop.finetune |=
        loop.upcycles || format == ModelFormat::kPiton || format == ModelFormat::kMegatron;
    return;
  }
  say(fmt::format(
      "--save: {} holds iteration {} of the run that started from {}: continuing from that{}",
      loop.save, iteration_of(std::filesystem::path(found).filename().string()).value_or(0),
      loop.load, loop.no_load_optim && !loop.no_save_optim ? " and from its optimizer" : ""));
  (adapters ? loop.lora_load : loop.load) = loop.save;
  same_command_ = !adapters;
  forget_load_of_start(loop);
  if (!adapters) loop.ckpt_step.reset();  // of the folder from which the run started
}

void RunOpener::open_tokenizer_and_plan() {
  foreign_ = given_.lora.given() ? adopt_base(given_) : adopt_foreign_model(given_);
  if (!foreign_ && !given_.loop.load.empty()) say(adopt_checkpoint(given_, same_command_));
  run_.tokenizer = open_run_tokenizer(given_, foreign_);
  const Tokenizer* tokenizer = run_.tokenizer.get();
  RunPlan& plan = run_.plan;
  plan = make_run_plan(given_, machine_.world.size(),
                       tokenizer != nullptr ? tokenizer->vocabulary_size() : 0);
  Session::check_device(machine_, plan.mesh, plan.session);
  check_float8(machine_.kernels, plan.session.layout.float8);
  check_head(given_, plan);
  check_rollout_batches(given_, plan);
  add_second_models(given_, plan);
  given_.optimizer.check();
  check_range("--timing-log-level", given_.timing.timing_log_level, 0, 2);
  RunTrace::check(given_.timing, given_.loop.save, machine_.world.size());
  settle();
  TrainState& state = run_.state;
  state.seed = given_.loop.seed;
  if (state.seed > std::numeric_limits<std::uint32_t>::max()) {
    say(
        fmt::format("--seed {}: the order of samples is drawn from its low 32 bits, {}, as "
                    "Megatron's generator takes no more; weights and dropout take all",
                    state.seed, static_cast<std::uint32_t>(state.seed)));
  }
  if (tokenizer != nullptr) state.facts[kTokenizerFact] = tokenizer->content_hash();
  if (foreign_) state.facts.insert(foreign_->facts.begin(), foreign_->facts.end());
  if (!foreign_ && given_.loop.starts_from_load && given_.loop.finetune)
    keep_start(given_.loop.load, state.facts);
}

// Of --num-train-epochs, the schedules have to wait for the data.
void RunOpener::settle() {
  const RunPlan& plan = run_.plan;
  const bool length_is_known = !given_.loop.num_train_epochs;
  if (length_is_known) {  // what was given, before what came out of it
    static_cast<void>(
        LearningRate(given_.learning_rate, plan.whole_steps(), plan.global_batch, plan.sequence));
  }
  run_.settled = settled_options(given_, plan);
  source_ = given_.lora.given() ? loop_of_adapters(run_.settled.loop) : run_.settled.loop;
  if (length_is_known) make_schedules();
  run_.settled.tokenizer = from_anywhere(given_.tokenizer);
}

void RunOpener::settle_found(const RunLength& found) {
  say(found.note);
  settle_length(found, given_, run_.plan);
  settle();
}

// The first rank chooses: measured times differ between ranks.
void RunOpener::choose_recomputation() {
  if (!run_.plan.memory_limit) return;
  PITON_ASSERT(inputs_.planner != nullptr, "a run with a memory limit needs a planner");
  const RecomputeChoice choice = decode_choice(found_by_first(
      everyone_, [&] { return encode(inputs_.planner->choose_recompute(run_.plan)); }));
  run_.plan.session.layout.recompute = choice.rules;
  say(choice.why);
}

void RunOpener::make_schedules() {
  run_.rate = std::make_unique<LearningRate>(run_.settled.learning_rate, run_.plan.whole_steps(),
                                             run_.plan.global_batch, run_.plan.sequence);
  run_.decay = std::make_unique<WeightDecay>(run_.settled.optimizer, run_.plan.whole_steps());
}

// Takes the lock of --save before reading anything in it. A folder is created only after the
// training data was opened.
void RunOpener::take_folder(bool may_create) {
  const std::string& save = run_.settled.loop.save;
  if (save.empty()) return;
  phase(everyone_, 0, [&] {
    if (run_.folder != nullptr || !(may_create || std::filesystem::is_directory(save))) return;
    run_.folder = std::make_unique<RunFolder>(save);
    run_.claim = FolderClaim::kLocked;
  });
  if (may_create) run_.claim = FolderClaim::kLocked;
}

void RunOpener::open_data() {
  together([&] { templates_ = used_templates(given_, foreign_); });
  say(templates_.note);
  const auto reading = [&]() -> RecordReading {
    return {.tokenizer = run_.tokenizer.get(),
            .chat_templates = templates_.templates,
            .workers = machine_.threads.threads()};
  };
  if (given_.preferences.by_rewards()) return together([&] { open_questions(); });
  const std::map<std::string, std::string> prefixes =
      convert_on_first_rank(given_, reading, everyone_, sinks_, run_.records);
  together([&] {
    const auto options = [&] {
      PretrainOptions with_corpora = given_;
      with_corpora.data = with_prefixes(std::move(with_corpora.data), prefixes);
      return with_corpora;
    };
    if (given_.loop.num_train_epochs) {
      settle_found(length_of_epochs(options(), run_.plan, run_.tokenizer.get(), inputs_.samples));
    }
    run_.data = std::make_unique<RunData>(
        options(), run_.plan, run_.tokenizer.get(), sinks_,
        RunInputs{.own = inputs_.samples, .files = files_by_prefix(prefixes)});
    run_.state.facts.merge(run_.data->facts());
    open_prompts();
  });
}

void RunOpener::open_prompts() {
  if (run_.settled.sample_prompts.file.empty()) return;
  run_.prompts = open_sample_prompts({.options = run_.settled,
                                      .plan = run_.plan,
                                      .tokenizer = run_.tokenizer.get(),
                                      .templates = templates_.templates,
                                      .own_template = run_.data->chat_template(sinks_),
                                      .adds_special_tokens = rule_of_run(run_.state.facts).add});
}

void RunOpener::open_questions() {
  const Tokenizer* const tokenizer = run_.tokenizer.get();
  run_.rollouts =
      open_rollouts(given_, run_.plan, {tokenizer, templates_.templates, inputs_.samples}, sinks_);
  if (given_.loop.num_train_epochs)
    settle_found(length_of_epochs(given_, run_.plan, *run_.rollouts));
  run_.data = data_of_questions(*run_.rollouts, given_, run_.plan, sinks_);
  run_.state.facts.merge(run_.data->facts());
  open_prompts();
}

void RunOpener::load_or_draw() {
  CheckpointChoice choice(source_, everyone_, sinks_);
  run_.session = std::make_unique<Session>(machine_, *run_.mesh, run_.plan.session);
  run_.objective = open_objective(run_.settled, machine_, everyone_, *run_.session);
  for (const std::string& note : notes_of_second_models(given_, run_.objective)) say(note);
  add_facts_of_second_models(run_.objective, run_.state.facts);
  run_.checkpoints = std::make_unique<RunCheckpoints>(
      machine_, RunModels{*run_.session, run_.objective.critic.get()}, *run_.data, run_.settled);
  say_model();
  const OffloadOptions& offload = run_.settled.offload;
  for (const std::string& note : {about_state(offload, run_.session->offloaded_bytes()),
                                  about_activations(offload, machine_.device),
                                  about_float8(run_.settled.float8, machine_.device)}) {
    say(note);
  }
  if (given_.lora.given()) {
    const std::int64_t trained = run_.checkpoints->trained_elements();
    say(fmt::format("adapters: {} parameters are trained, {:.2f} % of the model's", trained,
                    100.0 * static_cast<double>(trained) /
                        static_cast<double>(run_.plan.session.model.parameters())));
    run_.state.facts[kBaseFact] = weights_hash(*foreign_->source, everyone_);
    run_.checkpoints->load_base(*foreign_, sinks_);
  }
  if (choice.folder().empty()) {
    if (given_.lora.given()) {
      start_adapters();
    } else {
      run_.session->initialize();
    }
    return make_saves({});
  }
  make_saves(load(choice));
  if (timers_ == nullptr) return;
  for (const std::string& line :
       timer_lines(timers_->take_loads(everyone_), run_.settled.timing.timing_log_option)) {
    say(line);
  }
}

void RunOpener::start_adapters() {
  const std::string& from = run_.settled.loop.lora_load;
  if (!is_adapter_alone(from)) return run_.checkpoints->start_adapters(nullptr, sinks_);
  const OpenedAdapter adapter = open_adapter(from, *foreign_, everyone_);
  run_.checkpoints->start_adapters(&adapter, sinks_);
}

// Returns the iteration of the checkpoint if it is the newest one in --save. A damaged checkpoint
// may be found so when values are partly set; the load of another one sets all of them.
std::optional<std::int64_t> RunOpener::load(CheckpointChoice& choice) {
  const Section whole(machine_.sections, kLoadSection);
  const PretrainOptions before = run_.settled;
  for (bool loaded = false; !loaded;) {
    bool damaged = false;
    try {
      load_one(choice.folder(), &damaged);
      loaded = true;
    } catch (const Error& error) {
      if (!damaged || error.fault() != Fault::kData) throw;
      choice.fall_back(error);
      run_.settled = before;
    }
  }
  const bool own = given_.lora.given() || !foreign_;
  if (!own || source_.finetune || !continues(source_.load, source_.save)) return {};
  run_.checkpoints->set_damaged(choice.skipped());
  return choice.skipped().empty() ? std::optional(run_.state.iteration) : std::nullopt;
}

void RunOpener::load_one(const std::filesystem::path& checkpoint, bool* damaged) {
  RunCheckpoints& checkpoints = *run_.checkpoints;
  TrainState& state = run_.state;
  const bool adapters = given_.lora.given();
  if (!adapters && foreign_ && foreign_->run) {
    state = checkpoints.resume_foreign(*foreign_, state, sinks_);
    make_schedules();  // which may be the checkpoint's
  } else if (!adapters && foreign_) {
    checkpoints.start_from_foreign_weights(*foreign_, sinks_);
  } else if (source_.finetune) {
    checkpoints.start_from_weights(checkpoint, state, sinks_, damaged);
  } else {
    state = checkpoints.resume({checkpoint, state, run_.plan.train_iters}, sinks_, damaged);
    make_schedules();  // which may be the checkpoint's
  }
}

void RunOpener::make_saves(std::optional<std::int64_t> saved_iteration) {
  run_.saves =
      std::make_unique<RunSaves>(SaveRules{.loop = run_.settled.loop,
                                           .train_iters = run_.plan.train_iters,
                                           .in_background = run_.settled.saves_in_background()},
                                 SavedRun{.writer = *run_.checkpoints,
                                          .state = run_.state,
                                          .folder = run_.folder.get(),
                                          .everyone = everyone_,
                                          .sinks = sinks_,
                                          .sections = machine_.sections,
                                          .timers = timers_},
                                 saved_iteration);
}

// Writes the files of the folder that do not change: config.toml, samples, the tokenizer.
void RunOpener::start_folder() {
  const std::string& save = run_.settled.loop.save;
  if (save.empty()) return;
  phase(everyone_, 0, [&] {
    run_.folder->start(configuration_of(run_.settled), run_.state.iteration);
    if (given_.rollouts.log_completions > 0) run_.folder->start_completions(run_.state.iteration);
    write_text_file(std::filesystem::path(save) / kSamplesName,
                    run_.data->first_samples(kSamplesKept, run_.tokenizer.get()));
    if (run_.tokenizer != nullptr) keep_run_tokenizer(given_, foreign_, *run_.tokenizer);
    keep_chat_template(templates_.kept, save);
    keep_chat_template(run_.data->chat_template(sinks_), save);
    run_.failures.forget_earlier();
  });
}

// Opens metrics.jsonl and TensorBoard's events, which the first rank writes.
void RunOpener::open_figures() {
  const LoopOptions& loop = run_.settled.loop;
  std::filesystem::path events = loop.tensorboard_dir;
  if (events.empty() && !loop.save.empty())
    events = std::filesystem::path(loop.save) / "tensorboard";
  phase(everyone_, 0, [&] {
    if (events.empty() || run_.done()) return;
    run_.tensorboard = std::make_unique<TensorBoardSink>(
        events, run_.state.iteration, run_.settled.timing.log_timers_to_tensorboard, sinks_,
        [folder = run_.folder.get()] { return folder == nullptr || folder->is_ours(); });
  });
  if (run_.tensorboard != nullptr) sinks_.add_first(*run_.tensorboard);
  if (run_.folder == nullptr) return;
  run_.metrics = std::make_unique<MetricsSink>(run_.folder->metrics(), sinks_);
  sinks_.add_first(*run_.metrics);
}

void RunOpener::say_model() {
  const RunPlan& plan = run_.plan;
  const ModelConfig& model = plan.session.model;
  say(fmt::format(
      "model: {} parameters, {} layers, {}; {} tokens an update ({} samples of {}, "
      "{} micro-batch{} a rank)",
      model.parameters(), model.layers, name(model.dtype), plan.global_batch * plan.sequence,
      plan.global_batch, plan.sequence, plan.micro_batches, plan.micro_batches > 1 ? "es" : ""));
  say(given_.model.changes_of_preset(model));
  const std::string random = warning_of_random_router(model);
  if (!random.empty()) sinks_.warning(random);
}

void RunOpener::say_options() {
  for (const std::string& line : option_lines(given_, run_.settled)) say(line);
  for (const auto& line : lines_without_effect(given_, run_.plan.session.model))
    sinks_.warning(line);
}

void RunOpener::warn_of_zero_rate() {
  const std::int64_t left = run_.plan.train_iters - run_.state.iteration;
  const std::string warning = warning_of_zero_rate(*run_.rate, run_.place_in_schedule(), left);
  if (!warning.empty()) sinks_.warning(warning);
}

void RunOpener::say_plan() {
  const LoopOptions& loop = run_.settled.loop;
  TrainState& state = run_.state;
  phase(everyone_, 0, [&] { RunFolder::check_free(loop.save); });
  const CheckpointChoice choice(source_, everyone_, sinks_);
  const bool adapters = given_.lora.given();
  const bool resumes = !choice.folder().empty() && (adapters || !foreign_) && !source_.finetune;
  if (resumes) {
    phase(everyone_, 0, [&] {
      state = RunCheckpoints::checked_state(choice.folder(), run_.settled, state, *run_.data);
    });
  }
  say_model();
  if (inputs_.planner != nullptr) {
    const MemoryCounts need = inputs_.planner->plan_memory(run_.plan);
    say(fmt::format("memory of rank 0 at most: {}", memory_text(need)));
  }
  say_options();
  const std::string from = choice.folder().string();
  if (resumes) {
    say(fmt::format("it would resume {}: iteration {}, {} samples", from, state.iteration,
                    state.consumed_samples));
  } else {
    say(!from.empty() ? fmt::format("it would start from the weights of {}", from)
        : adapters    ? fmt::format("it would start with new adapters of {}", loop.load)
                      : "it would start from random weights");
  }
  const std::int64_t end = run_.plan.train_iters;
  say(fmt::format("it would do {} updates, to iteration {}, and {}",
                  std::max<std::int64_t>(end - state.iteration, 0), end,
                  loop.save.empty() ? "keep nothing: no --save is given" : "save to " + loop.save));
  say("--dry-run: all checks passed; nothing is written");
}

}  // namespace

OpenedRun::OpenedRun(const PretrainOptions& options)
    : settled(without_training_if_skipped(options)), failures(settled.loop.save) {}

double OpenedRun::place_in_schedule() const {
  return static_cast<double>(state.scheduled_samples.value_or(0)) /
         static_cast<double>(plan.global_batch);
}

void open_run(const RunOpening& opening, OpenedRun& run) { RunOpener(opening, run).open(); }

void check_run(const RunOpening& opening, OpenedRun& run) { RunOpener(opening, run).check(); }

}  // namespace piton
