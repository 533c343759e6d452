#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/files/files.h"
#include "base/options/option_range.h"
#include "base/reported_elsewhere.h"
#include "base/seconds.h"
#include "checkpoint/collective.h"
#include "train/run/foreign_model.h"
#include "train/run/memory_check.h"
#include "train/run/option_lines.h"
#include "train/run/recompute_choice.h"
#include "train/run/resume_rules.h"
#include "train/run/run_start.h"
#include "train/run/run_tokenizer.h"

namespace piton {
namespace {

constexpr std::int64_t kSamplesKept = 3;

// --skip-train writes nothing, loads no optimizer, and has no schedule ahead.
PretrainOptions options_of_run(PretrainOptions options) {
  LoopOptions& loop = options.loop;
  if (!loop.skip_train) return options;
  loop.save.clear();
  loop.tensorboard_dir.clear();
  loop.save_interval = loop.keep = 0;
  loop.save_interval_minutes.reset();
  loop.verify_saves = loop.no_save_optim = false;
  loop.no_load_optim = loop.override_scheduler = true;
  loop.use_checkpoint_scheduler = false;
  return options;
}

}  // namespace

Trainer::Trainer(const Machine& machine, const PretrainOptions& options,
                 std::vector<RunSink*> sinks, TrainerInputs inputs)
    : Trainer(machine, options, std::move(sinks), std::move(inputs), Extent::kRun) {}

void Trainer::check(const Machine& machine, const PretrainOptions& options,
                    std::vector<RunSink*> sinks, TrainerInputs inputs) {
  const Trainer checked(machine, options, std::move(sinks), std::move(inputs), Extent::kCheck);
}

Trainer::Trainer(const Machine& machine, const PretrainOptions& options,
                 std::vector<RunSink*> sinks, TrainerInputs inputs, Extent extent)
    : created_(std::chrono::steady_clock::now()),
      trace_(extent == Extent::kRun
                 ? RunTrace::make(options.timing, options.loop.save, machine.world.rank())
                 : nullptr),
      machine_(trace_ ? trace_->traced(machine) : machine),
      options_(options_of_run(options)),
      settled_(options_),
      sinks_(std::move(sinks), machine.world.rank() == 0),
      failure_report_(options_.loop.save),
      planner_(inputs.planner),
      own_samples_(std::move(inputs.samples)) {
  if (options.timing.timing_log_level > 0) {
    timers_ = std::make_unique<RunTimers>(options.timing.timing_log_level);
    sections_.add(*timers_);
  }
  if (trace_) sections_.add(*trace_);
  if (!sections_.empty()) machine_.sections = &sections_;
  guarded([&] { extent == Extent::kRun ? open() : check_all(); });
}

Trainer::~Trainer() {
  // Before anything is released: the folder's lock, and what the save communicates by.
  if (checkpoints_ != nullptr) checkpoints_->await_background();
}

template <typename Work>
void Trainer::together(Work&& work) {
  phase(*everyone_, std::nullopt, work);
}

void Trainer::report(const std::exception& error) {
  if (checkpoints_ != nullptr) {
    // The checkpoint of a step before the failure is good: the threads of all ranks can end it.
    try {
      const auto finished = checkpoints_->take_finished(/*wait=*/true, *everyone_);
      if (finished) report_outcome(*finished, {});
    } catch (const std::exception&) {
      // A rank is lost. What is reported is why.
    }
  }
  const Failure failure = failure_of(error);
  const bool said = dynamic_cast<const ReportedByAnotherRank*>(&error) != nullptr;
  const bool refused = failure.exit_code == static_cast<int>(Fault::kUsage);
  // A run that is refused at the start must not write to the folder of the run that it was refused
  // for, and nobody writes to a folder that another run holds.
  const bool locked = folder_ != nullptr || locked_;
  const bool lost = folder_ != nullptr && !folder_->is_ours();
  if (!said && !lost && (owns_folder_ || (locked && !refused))) {
    failure_report_.write(machine_.world.rank(), failure);
  }
  machine_.world.fail(failure.exit_code, failure.message);
  if (said || machine_.world.size() == 1 || failure.fault == kInternalFault) return;
  throw Error(static_cast<Fault>(failure.exit_code), "[rank {}] {}", machine_.world.rank(),
              failure.message);
}

void Trainer::check_before_allocation() {
  everyone_ = make_group_of_all(machine_.world, "run");
  continue_started_run();
  together([&] { open_tokenizer_and_plan(); });
  choose_recomputation();
  if (planner_ != nullptr) check_memory(machine_, planner_->plan_memory(plan_), *everyone_);
  log_kernel_differences();
  mesh_ = std::make_unique<Mesh>(machine_.world, plan_.mesh);
}

void Trainer::open_data() {
  together([&] {
    data_ = std::make_unique<RunData>(options_, plan_, tokenizer_.get(), sinks_, own_samples_);
    state_.facts.merge(data_->facts());
  });
}

void Trainer::open() {
  if (options_.loop.dry_run) {
    throw Error(Fault::kUsage, "--dry-run: is for piton pretrain; a program leaves it out");
  }
  check_before_allocation();
  take_folder(/*may_create=*/false);
  open_data();
  take_folder(/*may_create=*/true);
  load_or_draw();
  if (!done()) {
    say_options();
    if (!options_.loop.skip_train) warn_of_zero_rate();
  }
  warn_if_not_saving();
  open_figures();
  if (trace_) trace_->open(state_.iteration, *everyone_, sinks_);
  if (machine_.peak != nullptr) peak_flops_ = machine_.peak->flops(plan_.session.model.dtype);
  started_at_ = timed_at_ = state_.iteration;
  last_save_ = std::chrono::steady_clock::now();
  session_->pipeline().observer = [this](const Step& part) {
    sections_.begin_pass(part.pass, part.micro_batch);
    sinks_.on_part({.iteration = state_.iteration + (evaluation_ > 0 ? 0 : 1),
                    .evaluation = evaluation_,
                    .pass = part.pass,
                    .micro_batch = part.micro_batch,
                    .micro_batches = evaluation_ > 0
                                         ? plan_.micro_batches
                                         : session_->pipeline().schedule().micro_batches});
  };
  sinks_.on_start(start());
  if (done() && !options_.loop.skip_train) {
    say(
        fmt::format("nothing left to do: the run has done {} of {} iterations; a larger "
                    "--train-iters goes on",
                    state_.iteration, plan_.train_iters));
  }
}

// The first rank looks, so that all ranks start from the same folder.
void Trainer::continue_started_run() {
  LoopOptions& loop = options_.loop;
  std::string found;
  phase(*everyone_, 0, [&] { found = checkpoint_of_started_run(loop).value_or("").string(); });
  found = everyone_->gather_bytes(found)[0];
  if (found.empty()) return;
  say(fmt::format(
      "--save: {} holds iteration {} of the run that started from {}: going on with "
      "that",
      loop.save, iteration_of(std::filesystem::path(found).filename().string()).value_or(0),
      loop.load));
  loop.load = loop.save;
  same_command_ = true;
}

void Trainer::open_tokenizer_and_plan() {
  foreign_ = adopt_foreign_model(options_);
  if (!foreign_ && !options_.loop.load.empty()) {
    const std::string taken = adopt_checkpoint(options_, same_command_);
    if (!taken.empty()) say(taken);
  }
  if (!options_.tokenizer.empty()) tokenizer_ = open_tokenizer(options_.tokenizer);
  if (foreign_ && tokenizer_) {
    check_rows_for(*tokenizer_, foreign_->model, options_.loop.load);
    const std::string note = other_tokenizer_note(
        *tokenizer_, tokenizer_of_folder(options_.loop.load), options_.loop.load);
    if (!note.empty()) {
      foreign_->notes.push_back(note);
      foreign_->facts[kOtherTokenizerFact] = "true";
    }
  }
  plan_ = make_run_plan(options_, machine_.world.size(),
                        tokenizer_ ? tokenizer_->vocabulary_size() : 0);
  options_.optimizer.check();
  check_range("--timing-log-level", options_.timing.timing_log_level, 0, 2);
  RunTrace::check(options_.timing, options_.loop.save, machine_.world.size());
  // What was given, before what came out of it.
  static_cast<void>(LearningRate(options_.learning_rate, plan_.whole_steps(), plan_.global_batch,
                                 plan_.sequence));
  settled_ = settled_options(options_, plan_);
  make_schedules();
  settled_.tokenizer = from_anywhere(options_.tokenizer);
  state_.seed = options_.loop.seed;
  if (state_.seed > std::numeric_limits<std::uint32_t>::max()) {
    say(
        fmt::format("--seed {}: the order of samples is drawn from its low 32 bits, {}, as "
                    "Megatron's generator takes no more; weights and dropout take all",
                    state_.seed, static_cast<std::uint32_t>(state_.seed)));
  }
  if (tokenizer_) state_.facts[kTokenizerFact] = tokenizer_->content_hash();
  if (foreign_) state_.facts.insert(foreign_->facts.begin(), foreign_->facts.end());
}

// The first rank chooses: measured times differ between ranks.
void Trainer::choose_recomputation() {
  if (!plan_.memory_limit) return;
  PITON_ASSERT(planner_ != nullptr, "a run with a memory limit needs a planner");
  std::string chosen;
  phase(*everyone_, 0, [&] { chosen = encode(planner_->choose_recompute(plan_)); });
  const RecomputeChoice choice = decode_choice(everyone_->gather_bytes(chosen)[0]);
  plan_.session.layout.recompute = choice.rules;
  say(choice.why);
}

void Trainer::make_schedules() {
  rate_ = std::make_unique<LearningRate>(settled_.learning_rate, plan_.whole_steps(),
                                         plan_.global_batch, plan_.sequence);
  decay_ = std::make_unique<WeightDecay>(settled_.optimizer, plan_.whole_steps());
}

// Ranks on processors of other kinds compute with other instructions.
void Trainer::log_kernel_differences() {
  if (everyone_->size() == 1) return;
  const std::vector<std::string> names = everyone_->gather_bytes(machine_.kernels.name());
  for (std::size_t rank = 1; rank < names.size(); ++rank) {
    if (names[rank] == names[0]) continue;
    say(
        fmt::format("kernels differ: rank {} has {}, rank 0 has {}; bits follow from the layout of "
                    "the ranks",
                    rank, names[rank], names[0]));
    return;
  }
}

// Takes the lock of --save before reading anything in it. A folder is created only after the
// training data was opened.
void Trainer::take_folder(bool may_create) {
  const std::string& save = settled_.loop.save;
  if (save.empty()) return;
  phase(*everyone_, 0, [&] {
    if (folder_ != nullptr || !(may_create || std::filesystem::is_directory(save))) return;
    folder_ = std::make_unique<RunFolder>(save);
  });
  locked_ = may_create;
}

void Trainer::warn_of_zero_rate() {
  const std::int64_t left = plan_.train_iters - state_.iteration;
  const std::string warning = piton::warning_of_zero_rate(*rate_, place_in_schedule(), left);
  if (!warning.empty()) sinks_.warning(warning);
}

// Successful updates so far, in whole batches.
double Trainer::place_in_schedule() const {
  return static_cast<double>(state_.scheduled_samples.value_or(0)) /
         static_cast<double>(plan_.global_batch);
}

void Trainer::say_model() {
  const ModelConfig& model = plan_.session.model;
  say(
      fmt::format("model: {} parameters, {} layers, {}; {} tokens an update ({} samples of {}, "
                  "{} micro-batch{} a rank)",
                  model.parameters(), model.layers, name(model.dtype),
                  plan_.global_batch * plan_.sequence, plan_.global_batch, plan_.sequence,
                  plan_.micro_batches, plan_.micro_batches > 1 ? "es" : ""));
  const std::string changes = options_.model.changes_of_preset(model);
  if (!changes.empty()) say(changes);
}

void Trainer::say_options() {
  for (const std::string& line : option_lines(options_, settled_)) say(line);
}

void Trainer::load_or_draw() {
  CheckpointChoice choice(settled_.loop, *everyone_, sinks_);
  session_ = std::make_unique<Session>(machine_, *mesh_, plan_.session);
  checkpoints_ = std::make_unique<RunCheckpoints>(machine_, *mesh_, *session_, settled_);
  say_model();
  for (const std::string& note : {about_state(settled_.offload, session_->offloaded_bytes()),
                                  about_activations(settled_.offload, machine_.device)}) {
    if (!note.empty()) say(note);
  }
  if (choice.folder().empty()) {
    session_->initialize();
    return;
  }
  load(choice);
  if (!timers_) return;
  for (const std::string& line :
       timer_lines(timers_->take_loads(*everyone_), settled_.timing.timing_log_option)) {
    say(line);
  }
}

// A damaged checkpoint may be found so when values are partly set; the load of another one sets all
// of them.
void Trainer::load(CheckpointChoice& choice) {
  const Section whole(machine_.sections, kLoadSection);
  const PretrainOptions before = settled_;
  for (bool loaded = false; !loaded;) {
    bool damaged = false;
    try {
      load_one(choice.folder(), &damaged);
      loaded = true;
    } catch (const Error& error) {
      if (!damaged || error.fault() != Fault::kData) throw;
      choice.fall_back(error);
      settled_ = before;
    }
  }
  const LoopOptions& loop = settled_.loop;
  if (foreign_ || loop.finetune || !continues(loop.load, loop.save)) return;
  checkpoints_->set_damaged(choice.skipped());
  if (choice.skipped().empty()) saved_iteration_ = state_.iteration;
}

void Trainer::load_one(const std::filesystem::path& checkpoint, bool* damaged) {
  if (foreign_ && foreign_->run) {
    state_ = checkpoints_->resume_foreign(*foreign_, state_, sinks_);
    make_schedules();  // which may be the checkpoint's
  } else if (foreign_) {
    checkpoints_->start_from_foreign_weights(*foreign_, sinks_);
  } else if (settled_.loop.finetune) {
    checkpoints_->start_from_weights(checkpoint, state_, sinks_, damaged);
  } else {
    state_ = checkpoints_->resume({checkpoint, state_, plan_.train_iters}, *data_, sinks_, damaged);
    make_schedules();  // which may be the checkpoint's
  }
}

void Trainer::warn_if_not_saving() {
  const LoopOptions& loop = settled_.loop;
  owns_folder_ = !loop.save.empty();
  if (options_.loop.skip_train) return;
  if (!owns_folder_) {
    sinks_.warning("no --save is given: nothing of this run will be kept");
    return;
  }
  if (!done()) checkpoints_->check_room();
  saves_in_background_ = settled_.saves_in_background();
  const bool between_steps = loop.save_interval > 0 || loop.save_interval_minutes;
  if (!done() && between_steps && saves_in_background_) prepare_background_saves();
  if (loop.no_save_optim) {
    say("--no-save-optim: checkpoints hold the weights alone; to go on from one, give "
        "--no-load-optim");
  }
  phase(*everyone_, 0, [&] {
    folder_->start(configuration_of(settled_), state_.iteration);
    write_text_file(std::filesystem::path(loop.save) / kSamplesName,
                    data_->first_samples(kSamplesKept, tokenizer_.get()));
    if (tokenizer_ != nullptr) keep_tokenizer(options_.tokenizer, *tokenizer_, loop.save);
    failure_report_.forget_earlier();
  });
}

// Opens metrics.jsonl and TensorBoard's events, which the first rank writes.
void Trainer::open_figures() {
  const LoopOptions& loop = settled_.loop;
  std::filesystem::path events = loop.tensorboard_dir;
  if (events.empty() && !loop.save.empty())
    events = std::filesystem::path(loop.save) / "tensorboard";
  phase(*everyone_, 0, [&] {
    if (!events.empty() && !done()) {
      tensorboard_ = std::make_unique<TensorBoardSink>(
          events, state_.iteration, settled_.timing.log_timers_to_tensorboard, sinks_,
          [this] { return folder_ == nullptr || folder_->is_ours(); });
    }
  });
  if (tensorboard_ != nullptr) sinks_.add_first(*tensorboard_);
  if (folder_ == nullptr) return;
  metrics_ = std::make_unique<MetricsSink>(folder_->metrics(), sinks_);
  sinks_.add_first(*metrics_);
}

RunStart Trainer::start() const {
  return {.rank = machine_.world.rank(),
          .ranks = machine_.world.size(),
          .iteration = state_.iteration,
          .skipped = session_->optimizer().skipped(),
          .train_iters = plan_.train_iters,
          .eval_iters = settled_.loop.eval_iters,
          .global_batch = plan_.global_batch,
          .sequence = plan_.sequence,
          .micro_batches = plan_.micro_batches};
}

}  // namespace piton
