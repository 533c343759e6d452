#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/files.h"
#include "base/option_range.h"
#include "base/said_elsewhere.h"
#include "base/seconds.h"
#include "checkpoint/collective.h"
#include "train/foreign_model.h"
#include "train/memory_check.h"
#include "train/option_lines.h"
#include "train/recompute_choice.h"
#include "train/resume_rules.h"
#include "train/run_start.h"
#include "train/run_tokenizer.h"

namespace piton {
namespace {

constexpr std::int64_t kSamplesKept = 3;

// The place of a weight in the order of the forward pass: embedding, layers by the number after
// "layers.", last norm, head.
std::int64_t place_in_forward(const std::string& name) {
  constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();
  if (name.starts_with("embedding")) return -1;
  if (!name.starts_with("layers.")) return name.starts_with("head") ? kLast : kLast - 1;
  return std::atoll(name.c_str() + std::string_view("layers.").size());
}

// ": backward met them first in NAME". `bad`: parameters whose gradients are not finite. Backward
// goes from the last layer to the first and spreads what is not finite on its way.
std::string first_bad_layer(const std::vector<std::string>& bad, double loss) {
  if (bad.empty()) return "";
  const auto first =
      std::max_element(bad.begin(), bad.end(), [](const std::string& a, const std::string& b) {
        return place_in_forward(a) < place_in_forward(b);
      });
  return fmt::format(" (backward met the first in {}; {} parameters have some{})", *first,
                     bad.size(), std::isfinite(loss) ? "" : ", and the loss is not finite");
}

}  // namespace

Trainer::Trainer(const Machine& machine, const PretrainOptions& options,
                 std::vector<RunSink*> sinks, OwnSamples own)
    : created_(std::chrono::steady_clock::now()),
      trace_(RunTrace::make(options.timing, options.loop.save, machine.world.rank())),
      machine_(trace_ ? trace_->traced(machine) : machine),
      options_(options),
      settled_(options),
      sinks_(std::move(sinks), machine.world.rank() == 0),
      failure_report_(options.loop.save),
      own_samples_(std::move(own)) {
  if (options.timing.timing_log_level > 0) {
    timers_ = std::make_unique<RunTimers>(options.timing.timing_log_level);
    sections_.add(*timers_);
  }
  if (trace_) sections_.add(*trace_);
  if (!sections_.empty()) machine_.sections = &sections_;
  guarded([&] { open(); });
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
      if (finished) say_outcome(*finished, {});
    } catch (const std::exception&) {
      // A rank is lost. What is reported is why.
    }
  }
  const Failure failure = failure_of(error);
  const bool said = dynamic_cast<const SaidByAnotherRank*>(&error) != nullptr;
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

void Trainer::open() {
  everyone_ = make_group_of_all(machine_.world, "run");
  continue_started_run();
  together([&] { open_tokenizer_and_plan(); });
  choose_recomputation();
  if (machine_.plan_memory) {
    check_memory(machine_, machine_.plan_memory(plan_, options_.loop.micro_batch_size), *everyone_);
  }
  say_where_kernels_differ();
  mesh_ = std::make_unique<Mesh>(machine_.world, plan_.mesh);
  take_folder(/*may_create=*/false);
  together([&] {
    data_ = std::make_unique<RunData>(options_, plan_, tokenizer_.get(), sinks_, own_samples_);
    state_.facts.merge(data_->facts());
  });
  take_folder(/*may_create=*/true);
  load_or_draw();
  if (!done()) {
    for (const std::string& line : option_lines(options_, settled_)) say(line);
  }
  warn_of_zero_rate();
  keep_or_say_that_nothing_is_kept();
  open_figures();
  if (trace_) trace_->open(state_.iteration, *everyone_, sinks_);
  if (machine_.measure_peak_flops) {
    peak_flops_ = machine_.measure_peak_flops(plan_.session.model.dtype);
  }
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
  if (done()) {
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
  if (foreign_ && tokenizer_) check_rows_for(*tokenizer_, foreign_->model, options_.loop.load);
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
  std::string chosen;
  phase(*everyone_, 0,
        [&] { chosen = encode(machine_.choose_recompute(plan_, options_.loop.micro_batch_size)); });
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
void Trainer::say_where_kernels_differ() {
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

void Trainer::load_or_draw() {
  CheckpointChoice choice(settled_.loop, *everyone_, sinks_);
  session_ = std::make_unique<Session>(machine_, *mesh_, plan_.session);
  checkpoints_ = std::make_unique<RunCheckpoints>(machine_, *mesh_, *session_, settled_);
  const ModelConfig& model = plan_.session.model;
  say(
      fmt::format("model: {} parameters, {} layers, {}; {} tokens an update ({} samples of {}, "
                  "{} micro-batch{} a rank)",
                  model.parameters(), model.layers, name(model.dtype),
                  plan_.global_batch * plan_.sequence, plan_.global_batch, plan_.sequence,
                  plan_.micro_batches, plan_.micro_batches > 1 ? "es" : ""));
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
    state_ = checkpoints_->resume(checkpoint, state_, plan_.train_iters, *data_, sinks_, damaged);
    make_schedules();  // which may be the checkpoint's
  }
}

void Trainer::keep_or_say_that_nothing_is_kept() {
  const LoopOptions& loop = settled_.loop;
  owns_folder_ = !loop.save.empty();
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
          .train_iters = plan_.train_iters,
          .eval_iters = settled_.loop.eval_iters,
          .global_batch = plan_.global_batch,
          .sequence = plan_.sequence,
          .micro_batches = plan_.micro_batches};
}

StepMetrics Trainer::step() {
  return guarded([&] {
    settle_background_save(/*wait=*/false);
    if (trace_) trace_->before_step(state_.iteration, *everyone_);
    const StepMetrics metrics = one_step();
    look_at_the_clock();
    if (trace_) trace_->after_step(state_.iteration, *everyone_, sinks_);
    return metrics;
  });
}

StepMetrics Trainer::one_step() {
  const Section whole(machine_.sections, kStepSection, state_.iteration + 1);
  const LoopOptions& loop = settled_.loop;
  const auto begin = std::chrono::steady_clock::now();
  const double place = place_in_schedule();
  const std::int64_t batch = plan_.batches.at(state_.consumed_samples);
  state_.learning_rate = rate_->at(place);
  const StepReport report = session_->train_step(next_batch(), state_.consumed_samples,
                                                 state_.learning_rate, decay_->at(place));
  const double seconds = seconds_since(begin);
  state_.iteration += 1;
  state_.consumed_samples += batch;
  state_.consumed_tokens += batch * plan_.sequence;
  if (!report.skipped) state_.scheduled_samples = state_.scheduled_samples.value_or(0) + batch;
  state_.lm_loss = report.loss;
  StepMetrics metrics = measured(report, batch, seconds);
  count_skips(report);
  if (data_->has_validation() && (state_.iteration % loop.eval_interval == 0 || done())) {
    metrics.validation_loss = validation_loss_ = run_evaluation();
  }
  if (timers_ && log_due()) {
    const auto steps = static_cast<double>(state_.iteration - timed_at_);
    metrics.timers = timers_->take_parts(steps, *everyone_);
    timed_at_ = state_.iteration;
  }
  {
    const Section logging(machine_.sections, kLoggingSection);
    sinks_.on_step(metrics);
    if (metrics.validation_loss) {
      sinks_.on_validation({.iteration = state_.iteration, .loss = *metrics.validation_loss});
    }
  }
  if (state_.iteration - started_at_ == 2) warn_of_rare_saves(seconds);
  return metrics;
}

std::vector<MicroBatch> Trainer::next_batch() {
  const Section data(machine_.sections, kDataSection);
  const std::int64_t consumed = state_.consumed_samples;
  std::vector<MicroBatch> batch = data_->training_batch(*mesh_, consumed);
  // Comes from the disk while this step computes.
  data_->announce_training_batch(*mesh_, consumed + plan_.batches.at(consumed));
  return batch;
}

// As LogSink has it.
bool Trainer::log_due() const {
  return done() || state_.iteration % settled_.loop.log_interval == 0;
}

StepMetrics Trainer::measured(const StepReport& report, std::int64_t batch, double seconds) const {
  StepMetrics metrics{.iteration = state_.iteration,
                      .consumed_samples = state_.consumed_samples,
                      .consumed_tokens = state_.consumed_tokens,
                      .global_batch = batch,
                      .lm_loss = report.loss,
                      .grad_norm = report.grad_norm,
                      .learning_rate = state_.learning_rate,
                      .loss_scale = report.loss_scale,
                      .elapsed_ms = 1e3 * seconds,
                      .skipped = session_->optimizer().skipped(),
                      .memory = machine_.arena.counts(),
                      .offloaded_bytes = session_->offloaded_bytes(),
                      .traffic = machine_.world.traffic()};
  if (settled_.loop.log_params_norm || settled_.loop.log_num_zeros) {
    const OptimizerFigures figures = session_->optimizer().figures(machine_.stream);
    if (settled_.loop.log_params_norm) metrics.params_norm = figures.params_norm;
    if (settled_.loop.log_num_zeros) metrics.num_zeros = figures.num_zeros;
  }
  const double tokens = static_cast<double>(batch * plan_.sequence);
  metrics.tokens_per_second = tokens / seconds;
  const double flops =
      3.0 * plan_.session.model.forward_flops_per_token(plan_.sequence) * tokens / seconds;
  metrics.model_tflops = flops * 1e-12;
  if (peak_flops_ > 0) metrics.share_of_peak = flops / (peak_flops_ * machine_.world.size());
  return metrics;
}

void Trainer::count_skips(const StepReport& report) {
  if (!report.skipped) {
    consecutive_skips_ = 0;
    return;
  }
  const OptimizerOptions& options = session_->settings().optimizer_options;
  const bool adapts = options.scaling().dynamic && report.loss_scale > options.min_loss_scale;
  if (adapts) {
    say(fmt::format(
        "iteration {}: gradients overflow at a loss scale of {}; the update is skipped, "
        "the scale is now {}",
        state_.iteration, report.loss_scale, session_->optimizer().loss_scale()));
    return;
  }
  if (std::isfinite(report.grad_norm)) {
    say(fmt::format(
        "iteration {}: a spike (loss {:.4f}, gradient norm {:.3f}); the update is skipped",
        state_.iteration, report.loss, report.grad_norm));
    return;
  }
  ++consecutive_skips_;
  say(fmt::format("iteration {}: gradients are not finite; the update is skipped",
                  state_.iteration));
  if (consecutive_skips_ >= settled_.loop.max_consecutive_skips) {
    const std::vector<std::string> bad =
        session_->optimizer().parameters_not_finite(machine_.stream);
    throw Error(Fault::kDiverged,
                "iteration {}: {} updates in a row had no finite gradients{}; lower --lr, or "
                "continue from an earlier checkpoint",
                state_.iteration, consecutive_skips_, first_bad_layer(bad, report.loss));
  }
}

// The first step warms up; the second one shows how long the run will take.
void Trainer::warn_of_rare_saves(double seconds_a_step) {
  const LoopOptions& loop = settled_.loop;
  if (loop.save.empty() || loop.save_interval_minutes) return;  // the first is said at the start
  std::int64_t left = plan_.train_iters - state_.iteration;
  if (loop.exit_interval) {
    left = std::min(left, *loop.exit_interval - state_.iteration % *loop.exit_interval);
  }
  double seconds = seconds_a_step * static_cast<double>(left);
  if (loop.exit_duration_minutes) {
    seconds = std::min(seconds, 60 * *loop.exit_duration_minutes - seconds_since(created_));
  }
  const std::string warning = warning_of_rare_saves(seconds, loop.save, loop.save_interval);
  if (!warning.empty()) sinks_.warning(warning);
}

double Trainer::evaluate() {
  return guarded([&] {
    if (!data_->has_validation()) {
      throw Error(Fault::kUsage, "evaluate: this run has no validation samples; set --eval-iters");
    }
    const double loss = run_evaluation();
    sinks_.on_validation({.iteration = state_.iteration, .loss = loss});
    return loss;
  });
}

double Trainer::run_evaluation() {
  const LoopOptions& loop = settled_.loop;
  Session::Evaluation sum;
  const Section whole(machine_.sections, kEvaluateSection);
  const std::int64_t round = std::max<std::int64_t>(state_.iteration - 1, 0) / loop.eval_interval;
  for (std::int64_t i = 0; i < loop.eval_iters; ++i) {
    const std::int64_t consumed = (round * loop.eval_iters + i) * plan_.global_batch;
    evaluation_ = i + 1;
    const Session::Evaluation one = session_->evaluate(data_->validation_batch(*mesh_, consumed));
    sum.loss_sum += one.loss_sum;
    sum.loss_tokens += one.loss_tokens;
  }
  evaluation_ = 0;
  return sum.loss_sum / sum.loss_tokens;
}

bool Trainer::save_due() const {
  const LoopOptions& loop = settled_.loop;
  if (loop.save.empty() || is_saved() || saving_iteration_ == state_.iteration) return false;
  return done() || time_to_save_ ||
         (loop.save_interval > 0 && state_.iteration % loop.save_interval == 0);
}

bool Trainer::exit_due() const {
  const std::optional<std::int64_t>& interval = settled_.loop.exit_interval;
  return interval && state_.iteration > started_at_ && state_.iteration % *interval == 0;
}

void Trainer::finish() {
  guarded([&] {
    settle_background_save(/*wait=*/true);
    if (trace_) trace_->finish(*everyone_, sinks_);
    if (done() || exit_due()) check_that_it_ends_well();
    sinks_.on_finish();
  });
}

// One update without finite gradients at the very end is skipped like any other.
void Trainer::check_that_it_ends_well() const {
  std::string with;
  if (!std::isfinite(state_.lm_loss)) {
    with = "with a loss that is not finite";
  } else if (consecutive_skips_ > 1) {
    with = fmt::format("after {} updates in a row without finite gradients", consecutive_skips_);
  } else if (validation_loss_ && !std::isfinite(*validation_loss_)) {
    with = "with a validation loss that is not finite";
  }
  if (with.empty()) return;
  throw Error(Fault::kDiverged,
              "the run ends at iteration {} {}; lower --lr, or continue from an earlier checkpoint",
              state_.iteration, with);
}

StopRequest Trainer::agreed_stop(int signal) {
  return guarded([&] {
    const std::optional<double>& minutes = settled_.loop.exit_duration_minutes;
    StopRequest agreed{.signal = signal,
                       .time_is_up = minutes && state_.iteration > started_at_ &&
                                     seconds_since(created_) > 60 * *minutes};
    if (everyone_->size() == 1) return agreed;
    const std::vector<std::string> all =
        everyone_->gather_bytes(fmt::format("{}{}", agreed.time_is_up ? "t" : "f", signal));
    agreed = {};
    for (const std::string& one : all) {
      agreed.time_is_up |= one.front() == 't';
      if (agreed.signal == 0) agreed.signal = std::stoi(one.substr(1));
    }
    return agreed;
  });
}

}  // namespace piton
