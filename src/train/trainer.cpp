#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/reported_elsewhere.h"
#include "base/seconds.h"
#include "comm/gathered_values.h"
#include "parallel/without_observer.h"
#include "train/held_out.h"
#include "train/loss_watchdog.h"
#include "train/replica_hashes.h"
#include "train/rollback.h"
#include "train/run/best_validation.h"
#include "train/run/corpus_rule.h"
#include "train/run/run_tokenizer.h"
#include "train/run/task_evaluator.h"

namespace piton {

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
      faults_(RunFaults::make(options.faults, machine)),
      trace_(extent == Extent::kRun
                 ? RunTrace::make(options.timing, options.loop.save, machine.world.rank())
                 : nullptr),
      machine_(own_machine(machine)),
      inputs_(std::move(inputs)),
      sinks_(std::move(sinks), machine.world.rank() == 0),
      run_(options) {
  if (options.timing.timing_log_level > 0) {
    timers_ = std::make_unique<RunTimers>(options.timing.timing_log_level);
    sections_.add(*timers_);
  }
  if (trace_) sections_.add(*trace_);
  if (!sections_.empty()) machine_.sections = &sections_;
  guarded([&] {
    everyone_ = make_group_of_all(machine_.world, "run");
    const RunOpening opening{machine_, *everyone_, sinks_, inputs_, timers_.get()};
    if (extent == Extent::kCheck) {
      check_run(opening, run_);
      return check_tasks();
    }
    open_run(opening, run_);
    check_tasks();
    begin();
  });
}

Machine Trainer::own_machine(const Machine& given) {
  const Machine faulty = faults_ ? faults_->faulty(given) : given;
  return trace_ ? trace_->traced(faulty) : faulty;
}

void Trainer::report(const std::exception& error) {
  // The checkpoint of a step before the failure is good: the threads of all ranks can end it.
  if (run_.saves != nullptr) run_.saves->end_after_failure();
  const Failure failure = failure_of(error);
  const bool said = dynamic_cast<const ReportedByAnotherRank*>(&error) != nullptr;
  const bool refused = failure.exit_code == static_cast<int>(Fault::kUsage);
  // A run that is refused at the start must not write to the folder of the run that it was refused
  // for, and nobody writes to a folder that another run holds.
  const bool may_write =
      run_.claim == FolderClaim::kOwned || (run_.claim == FolderClaim::kLocked && !refused);
  const bool lost = run_.folder != nullptr && !run_.folder->is_ours();
  if (may_write && !said && !lost) run_.failures.write(machine_.world.rank(), failure);
  machine_.world.fail(failure.exit_code, failure.message);
  if (said || machine_.world.size() == 1 || failure.fault == kInternalFault) return;
  throw Error(static_cast<Fault>(failure.exit_code), "[rank {}] {}", machine_.world.rank(),
              failure.message);
}

void Trainer::begin() {
  if (trace_) trace_->open(run_.state.iteration, *everyone_, sinks_);
  if (machine_.peak != nullptr) peak_flops_ = machine_.peak->flops(run_.plan.session.model.dtype);
  started_at_ = timed_at_ = run_.state.iteration;
  skips_.emplace(run_.settled.loop.max_consecutive_skips,
                 run_.session->settings().optimizer_options, sinks_);
  Session& session = *run_.session;
  session.pipeline().observer = [this](const Step& part) {
    sections_.begin_pass(part.pass, part.micro_batch);
    sinks_.on_part({.iteration = run_.state.iteration + (evaluation_ > 0 ? 0 : 1),
                    .evaluation = evaluation_,
                    .pass = part.pass,
                    .micro_batch = part.micro_batch,
                    .micro_batches = evaluation_ > 0
                                         ? run_.plan.micro_batches
                                         : run_.session->pipeline().schedule().micro_batches});
  };
  record_steps();
  sinks_.on_start({.rank = machine_.world.rank(),
                   .ranks = machine_.world.size(),
                   .iteration = run_.state.iteration,
                   .skipped = session.optimizer().skipped(),
                   .train_iters = run_.plan.train_iters,
                   .eval_iters = run_.data->batches(HeldOutSet::kValidation),
                   .global_batch = run_.plan.global_batch,
                   .sequence = run_.plan.sequence,
                   .micro_batches = run_.plan.micro_batches,
                   .megatron_flops = run_.plan.megatron_flops_of_sample(),
                   .labels_texts = run_.plan.session.model.labels > 0});
  if (done() && !run_.settled.loop.skip_train) {
    sinks_.info(
        fmt::format("nothing left to do: the run has done {} of {} iterations; a larger "
                    "--train-iters continues",
                    run_.state.iteration, run_.plan.train_iters));
  }
}

void Trainer::record_steps() {
  const LoopOptions& loop = run_.settled.loop;
  if (!machine_.stream.can_record() || !loop.cuda_graph || loop.skip_train) return;
  Session& session = *run_.session;
  const std::string obstacle = faults_ ? "--fault" : session.obstacle_to_recording();
  if (obstacle.empty()) session.record_steps(true);
  sinks_.info(obstacle.empty()
                  ? "steps are recorded as CUDA graphs; --no-cuda-graph launches their kernels"
                  : fmt::format("steps are not recorded as CUDA graphs: {}", obstacle));
}

StepMetrics Trainer::step() {
  return guarded([&] {
    if (run_.settled.loop.skip_train) {
      throw Error(Fault::kUsage, "--skip-train: takes no step; leave it out to train");
    }
    run_.saves->before_step();
    skip_listed();
    if (done())
      return StepMetrics{.iteration = run_.state.iteration, .lm_loss = run_.state.lm_loss};
    if (trace_) trace_->before_step(run_.state.iteration, *everyone_);
    const std::int64_t iteration = run_.state.iteration + 1;
    if (faults_) faults_->before_step(iteration);
    const StepMetrics metrics = one_step();
    if (faults_) faults_->after_step(iteration, *everyone_);
    const std::optional<std::int64_t>& hashed =
        run_.settled.loop.check_weight_hash_across_dp_replicas_interval;
    if (hashed && iteration % *hashed == 0)
      check_replica_hashes(*run_.session, *run_.mesh, machine_, iteration);
    run_.saves->after_step();
    if (trace_) trace_->after_step(run_.state.iteration, *everyone_, sinks_);
    return metrics;
  });
}

// As Megatron's loop: neither a schedule nor the optimizer notices, and nothing is evaluated or
// saved. Its number of an iteration is how many were done before.
void Trainer::skip_listed() {
  TrainState& state = run_.state;
  while (!done() && std::ranges::count(run_.settled.loop.iterations_to_skip, state.iteration) > 0) {
    sinks_.info(fmt::format("iteration {}: --iterations-to-skip {}: its {} samples are passed over",
                            state.iteration + 1, state.iteration,
                            run_.plan.batches.at(state.consumed_samples)));
    state.consumed_samples += run_.plan.batches.at(state.consumed_samples);
    state.iteration += 1;
  }
}

bool Trainer::stops_early() const {
  const std::optional<std::int64_t>& patience = run_.settled.loop.early_stopping_patience;
  return patience && BestValidation::of(run_.state.facts).waited >= *patience;
}

StepMetrics Trainer::one_step() {
  TrainState& state = run_.state;
  const Section whole(machine_.sections, kStepSection, state.iteration + 1);
  const LoopOptions& loop = run_.settled.loop;
  const auto begin = std::chrono::steady_clock::now();
  const std::int64_t batch = run_.plan.batches.at(state.consumed_samples);
  const StepReport report = update(batch);
  const double seconds = seconds_since(begin);
  StepMetrics metrics = measured(report, batch, seconds);
  undo_if_diverged(report);
  const bool evaluates = state.iteration % loop.eval_interval == 0 || done();
  std::vector<RunValidation> validations;
  if (run_.data->has(HeldOutSet::kValidation) && evaluates) {
    validations = run_evaluation(HeldOutSet::kValidation);
    for (const RunValidation& one : validations)
      if (!one.name.empty() && one.loss) metrics.validation_losses.push_back({one.name, *one.loss});
    metrics.validation_loss = validation_loss_ = validations.back().loss;
    metrics.validation_figures = validations.back().figures;
    if (!validation_loss_) {
      sinks_.warning(fmt::format("iteration {}: {}", state.iteration, no_validation_loss()));
    } else if (loop.keep_best || loop.early_stopping_patience) {
      BestValidation best = BestValidation::of(state.facts);
      best.count(state.iteration, *validation_loss_, loop.early_stopping_threshold);
      best.keep_in(state.facts);
    }
  }
  if (run_.rollouts != nullptr && run_.rollouts->evaluates() && evaluates) {
    const Section asking(machine_.sections, kEvaluateSection);
    metrics.validation_figures = run_.rollouts->evaluate(rollout_models(), *everyone_);
    validations = {{.iteration = state.iteration, .figures = metrics.validation_figures}};
  }
  if (run_.prompts != nullptr && evaluates) metrics.answers = answer_prompts();
  if (inputs_.tasks != nullptr && (state.iteration % run_.settled.tasks.interval == 0 || done())) {
    metrics.tasks = evaluate_tasks();
  }
  if (timers_ && log_due()) {
    const auto steps = static_cast<double>(state.iteration - timed_at_);
    metrics.timers = timers_->take_parts(steps, *everyone_);
    timed_at_ = state.iteration;
  }
  {
    const Section logging(machine_.sections, kLoggingSection);
    sinks_.on_step(metrics);
    log_completions();
    for (const RunValidation& one : validations)
      if (one.loss || !one.figures.empty()) sinks_.on_validation(one);
  }
  // The first step warms up; the second one shows how long the run will take.
  if (state.iteration - started_at_ == 2) {
    run_.saves->warn_if_rare(seconds, seconds_since(created_));
  }
  return metrics;
}

// The step is counted and measured. Goes back to a checkpoint, or throws.
void Trainer::undo_if_diverged(const StepReport& report) {
  TrainState& state = run_.state;
  const LoopOptions& loop = run_.settled.loop;
  std::optional<Error> diverged;
  std::int64_t bad_steps = 0;  // a skipped one has the weights of the step before
  try {
    skips_->count({.iteration = state.iteration,
                   .report = report,
                   .next_loss_scale = run_.session->optimizer().loss_scale(),
                   .parameters_not_finite = [&] {
                     return run_.session->optimizer().parameters_not_finite(machine_.stream);
                   }});
    bad_steps = loop.loss_watchdog_patience;
    LossWatchdog(loop.loss_watchdog_threshold, bad_steps).count(state);
  } catch (const Error& error) {
    if (error.fault() != Fault::kDiverged || loop.rollback_on_divergence == 0) throw;
    diverged = error;
  }
  if (!diverged) return;
  run_.saves->finish();
  Rollback(loop, *run_.checkpoints, *everyone_, sinks_).undo(*diverged, bad_steps, state);
  skips_->restart();
}

// Trains on the next `batch` samples, and counts them.
StepReport Trainer::update(std::int64_t batch) {
  TrainState& state = run_.state;
  const double place = run_.place_in_schedule();
  const GroupRates rates = run_.rate->of_groups(place);
  state.learning_rate = rates.base;
  const double decay = run_.decay->at(place);
  const StepReport report =
      run_.rollouts != nullptr
          ? run_.rollouts->train_step(rollout_models(), *run_.objective.objective,
                                      {state.consumed_samples, rates, decay}, *everyone_)
          : run_.session->train_step(next_batch(), state.consumed_samples, rates, decay);
  state.iteration += 1;
  state.consumed_samples += batch;
  state.consumed_tokens += batch * row_length();
  if (!report.skipped) state.scheduled_samples = state.scheduled_samples.value_or(0) + batch;
  state.lm_loss = report.loss;
  return report;
}

RolloutModels Trainer::rollout_models() {
  const RunObjective& objective = run_.objective;
  return {*run_.session, objective.judge.get(), objective.reference.get(), objective.critic.get()};
}

// Tokens of each row of the last batch.
std::int64_t Trainer::row_length() const {
  return run_.rollouts != nullptr ? run_.rollouts->row_length() : run_.data->row_length();
}

std::vector<MicroBatch> Trainer::next_batch() {
  const std::int64_t consumed = run_.state.consumed_samples;
  const Section data(machine_.sections, kDataSection);
  std::vector<MicroBatch> batch = run_.data->training_batch(*run_.mesh, consumed);
  // Comes from the disk while this step computes.
  run_.data->announce_training_batch(*run_.mesh, consumed + run_.plan.batches.at(consumed));
  return batch;
}

// As LogSink has it.
bool Trainer::log_due() const {
  return done() || run_.state.iteration % run_.settled.loop.log_interval == 0;
}

StepMetrics Trainer::measured(const StepReport& report, std::int64_t batch, double seconds) const {
  const TrainState& state = run_.state;
  const LoopOptions& loop = run_.settled.loop;
  StepMetrics metrics{.iteration = state.iteration,
                      .consumed_samples = state.consumed_samples,
                      .consumed_tokens = state.consumed_tokens,
                      .global_batch = batch,
                      .lm_loss = report.loss,
                      .grad_norm = report.grad_norm,
                      .learning_rate = state.learning_rate,
                      .loss_scale = report.loss_scale,
                      .elapsed_ms = 1e3 * seconds,
                      .skipped = run_.session->optimizer().skipped(),
                      .resumed = started_at_ > 0 && state.iteration == started_at_ + 1,
                      .memory = machine_.arena.counts(),
                      .offloaded_bytes = run_.session->offloaded_bytes(),
                      .traffic = machine_.world.traffic(),
                      .figures = report.figures};
  if (loop.log_params_norm || loop.log_num_zeros) {
    const OptimizerFigures figures = run_.session->optimizer().figures(machine_.stream);
    if (loop.log_params_norm) metrics.params_norm = figures.params_norm;
    if (loop.log_num_zeros) metrics.num_zeros = figures.num_zeros;
  }
  const std::int64_t sequence = run_.rollouts != nullptr ? row_length() : run_.plan.sequence;
  const double tokens = static_cast<double>(batch * sequence);
  metrics.tokens_per_second = tokens / seconds;
  const double flops = 3.0 * tokens / seconds *
                       run_.plan.session.model.forward_flops_per_token(
                           sequence, run_.plan.decoder_sequence, report.loss_tokens / tokens);
  metrics.model_tflops = flops * 1e-12;
  if (peak_flops_ > 0) metrics.share_of_peak = flops / (peak_flops_ * machine_.world.size());
  return metrics;
}

double Trainer::evaluate() {
  return guarded([&] {
    if (!run_.data->has(HeldOutSet::kValidation)) {
      throw Error(Fault::kUsage, "evaluate: this run has no validation samples; set --eval-iters");
    }
    const std::optional<double> loss = report_evaluation(HeldOutSet::kValidation);
    if (!loss) throw Error(Fault::kData, no_validation_loss());
    return *loss;
  });
}

std::optional<double> Trainer::test() {
  if (!run_.data->has(HeldOutSet::kTest)) return std::nullopt;
  return guarded([&] { return report_evaluation(HeldOutSet::kTest); });
}

std::optional<double> Trainer::report_evaluation(HeldOutSet set) {
  const std::vector<RunValidation> results = run_evaluation(set);
  for (const RunValidation& one : results)
    if (one.loss) sinks_.on_validation(one);
  return results.back().loss;
}

std::vector<RunValidation> Trainer::run_evaluation(HeldOutSet set) {
  const Section whole(machine_.sections, kEvaluateSection);
  std::vector<RunValidation> results =
      evaluate_held_out(run_, set, [this](std::int64_t batch) { evaluation_ = batch; });
  evaluation_ = 0;
  return results;
}

void Trainer::check_tasks() const {
  if (inputs_.tasks == nullptr) return;
  if (run_.tokenizer == nullptr)
    throw Error(Fault::kUsage,
                "--eval-tasks: the run has no tokenizer; name it with --tokenizer-type, or leave "
                "this out");
  if (run_.plan.session.model.labels > 0)
    throw Error(Fault::kUsage,
                "--eval-tasks: a model of rewards or labels answers no question; leave it out");
  if (run_.settled.parallel.linears.sequence_parallel && run_.settled.parallel.tensor > 1)
    throw Error(
        Fault::kUsage,
        "--eval-tasks: cannot be combined with --sequence-parallel; evaluate checkpoints with "
        "piton eval");
  inputs_.tasks->check(task_texts());
}

TaskTexts Trainer::task_texts() const {
  return {.tokenizer = *run_.tokenizer,
          .special_tokens = rule_of_run(run_.state.facts),
          .sequence = run_.plan.sequence};
}

std::vector<PromptAnswer> Trainer::answer_prompts() {
  const Section whole(machine_.sections, kEvaluateSection);
  const WithoutObserver unobserved(run_.session->pipeline());
  return run_.prompts->answers(*run_.session, *run_.tokenizer);
}

std::vector<TaskFigure> Trainer::evaluate_tasks() {
  const Section whole(machine_.sections, kEvaluateSection);
  const WithoutObserver unobserved(run_.session->pipeline());
  return inputs_.tasks->evaluate({.session = *run_.session,
                                  .texts = task_texts(),
                                  .ends = text_ends_of_run(run_.settled.tokenizer, *run_.tokenizer),
                                  .batch_size = run_.settled.loop.micro_batch_size});
}

std::string Trainer::no_validation_loss() const {
  return fmt::format(
      "there is no validation loss: no token of the {} batches has one; check the loss mask of "
      "that corpus, or raise --eval-iters",
      run_.data->batches(HeldOutSet::kValidation));
}

// A full disk must not lose the run: the lines wait for space, as those of metrics.jsonl.
void Trainer::log_completions() {
  if (run_.folder == nullptr || run_.folder->completions() == nullptr) return;
  const std::string lines = run_.rollouts->completions(run_.state.iteration);
  const std::string why = run_.folder->completions()->write_lines(lines);
  if (!why.empty()) sinks_.warning(fmt::format("{}; its lines are kept and tried again", why));
}

void Trainer::save() {
  guarded([&] { run_.saves->save(); });
}

void Trainer::save_if_possible() {
  guarded([&] { run_.saves->save_if_possible(); });
}

void Trainer::finish_saves() {
  guarded([&] { run_.saves->finish(); });
}

void Trainer::finish() {
  guarded([&] {
    run_.saves->finish();
    if (trace_) trace_->finish(*everyone_, sinks_);
    if (run_.folder != nullptr && run_.folder->completions() != nullptr)
      run_.folder->completions()->finish();
    if (done() || exit_due() || stops_early()) check_that_it_ends_well();
    if (const BestValidation best = BestValidation::of(run_.state.facts);
        run_.settled.loop.keep_best && best.loss) {
      sinks_.info(
          fmt::format("--keep-best: the lowest validation loss, {:.6f}, is that of iteration {}: "
                      "--ckpt-step {}",
                      *best.loss, best.iteration, best.iteration));
    }
    sinks_.on_finish();
  });
}

// One update without finite gradients at the very end is skipped like any other.
void Trainer::check_that_it_ends_well() const {
  std::string with;
  if (!std::isfinite(run_.state.lm_loss)) {
    with = "with a loss that is not finite";
  } else if (skips_->in_a_row() > 1) {
    with = fmt::format("after {} updates in a row without finite gradients", skips_->in_a_row());
  } else if (validation_loss_ && !std::isfinite(*validation_loss_)) {
    with = "with a validation loss that is not finite";
  }
  if (with.empty()) return;
  throw Error(Fault::kDiverged,
              "the run ends at iteration {} {}; lower --lr, or continue from an earlier checkpoint",
              run_.state.iteration, with);
}

bool Trainer::exit_due() const {
  const std::optional<std::int64_t>& interval = run_.settled.loop.exit_interval;
  const std::int64_t iteration = run_.state.iteration;
  return interval && iteration > started_at_ && iteration % *interval == 0;
}

StopRequest Trainer::agreed_stop(int signal) {
  return guarded([&] {
    const std::optional<double>& minutes = run_.settled.loop.exit_duration_minutes;
    StopRequest agreed{.signal = signal,
                       .out_of_time = minutes && run_.state.iteration > started_at_ &&
                                      seconds_since(created_) > 60 * *minutes};
    if (everyone_->size() == 1) return agreed;
    for (const StopRequest& one : gathered_values(*everyone_, std::exchange(agreed, {}))) {
      agreed.out_of_time |= one.out_of_time;
      if (agreed.signal == 0) agreed.signal = one.signal;
    }
    return agreed;
  });
}

}  // namespace piton
