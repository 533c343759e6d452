// The steps of a run, and its evaluations.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/seconds.h"
#include "train/trainer.h"

namespace piton {
namespace {

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

StepMetrics Trainer::step() {
  return guarded([&] {
    if (options_.loop.skip_train) {
      throw Error(Fault::kUsage, "--skip-train: takes no step; leave it out to train");
    }
    settle_background_save(/*wait=*/false);
    if (trace_) trace_->before_step(state_.iteration, *everyone_);
    const StepMetrics metrics = one_step();
    check_save_time();
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
    if (!validation_loss_) {
      sinks_.warning(fmt::format("iteration {}: {}", state_.iteration, no_validation_loss()));
    }
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
                      .resumed = started_at_ > 0 && state_.iteration == started_at_ + 1,
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
  const bool is_spike = std::isfinite(report.grad_norm);
  if (adapts && !is_spike) {
    say(fmt::format(
        "iteration {}: gradients overflow at a loss scale of {}; the update is skipped, "
        "the scale is now {}",
        state_.iteration, report.loss_scale, session_->optimizer().loss_scale()));
    return;
  }
  if (is_spike) {
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
void Trainer::warn_of_rare_saves(double seconds_per_step) {
  const LoopOptions& loop = settled_.loop;
  if (loop.save.empty() || loop.save_interval_minutes) return;  // the first is reported earlier
  std::int64_t left = plan_.train_iters - state_.iteration;
  if (loop.exit_interval) {
    left = std::min(left, *loop.exit_interval - state_.iteration % *loop.exit_interval);
  }
  double seconds = seconds_per_step * static_cast<double>(left);
  if (loop.exit_duration_minutes) {
    seconds = std::min(seconds, 60 * *loop.exit_duration_minutes - seconds_since(created_));
  }
  const std::string warning = warning_of_rare_saves(seconds, loop.save, loop.save_interval);
  if (!warning.empty()) sinks_.warning(warning);
}

std::string Trainer::no_validation_loss() const {
  return fmt::format(
      "there is no validation loss: no token of the {} batches has one; check the loss mask of "
      "that corpus, or raise --eval-iters",
      settled_.loop.eval_iters);
}

double Trainer::evaluate() {
  return guarded([&] {
    if (!data_->has_validation()) {
      throw Error(Fault::kUsage, "evaluate: this run has no validation samples; set --eval-iters");
    }
    const std::optional<double> loss = run_evaluation();
    if (!loss) throw Error(Fault::kData, no_validation_loss());
    sinks_.on_validation({.iteration = state_.iteration, .loss = *loss});
    return *loss;
  });
}

// Nullopt if no token of the batches has a loss.
std::optional<double> Trainer::run_evaluation() {
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
  if (sum.loss_tokens == 0) return std::nullopt;
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
                       .out_of_time = minutes && state_.iteration > started_at_ &&
                                      seconds_since(created_) > 60 * *minutes};
    if (everyone_->size() == 1) return agreed;
    const std::vector<std::string> all =
        everyone_->gather_bytes(fmt::format("{}{}", agreed.out_of_time ? "t" : "f", signal));
    agreed = {};
    for (const std::string& one : all) {
      agreed.out_of_time |= one.front() == 't';
      if (agreed.signal == 0) agreed.signal = std::stoi(one.substr(1));
    }
    return agreed;
  });
}

}  // namespace piton
