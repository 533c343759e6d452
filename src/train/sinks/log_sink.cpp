#include "train/sinks/log_sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/amounts.h"
#include "base/seconds.h"

namespace piton {
namespace {

// " | rewards chosen: 1.234000E-01" for each figure of an objective.
std::string text_of(const std::vector<ObjectiveFigure>& figures) {
  std::string text;
  for (const ObjectiveFigure& one : figures) {
    if (one.count == 0) continue;
    std::string name = one.name;
    std::ranges::replace(name, '_', ' ');
    text += fmt::format(" | {}: {:.6E}", name, one.mean());
  }
  return text;
}

// " | num zeros: 12.0 | params norm: 3.456", what of it there is, as Megatron-LM writes it.
std::string optional_figures(const StepMetrics& metrics) {
  std::string text = text_of(metrics.figures);
  if (metrics.num_zeros) text += fmt::format(" | num zeros: {}.0", *metrics.num_zeros);
  if (metrics.params_norm) text += fmt::format(" | params norm: {:.3f}", *metrics.params_norm);
  return text;
}

}  // namespace

std::int64_t seconds_left(const RunStart& start, std::int64_t iteration, double seconds) {
  const double mean =
      seconds / static_cast<double>(std::max<std::int64_t>(iteration - start.iteration, 1));
  return static_cast<std::int64_t>(mean * static_cast<double>(start.train_iters - iteration));
}

// "nan" without a sign, which says nothing.
double unsigned_nan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

std::string megatron_line(const RunStart& start, const StepMetrics& metrics,
                          const IntervalCounts& counts, double seconds) {
  const double samples_per_second =
      metrics.elapsed_ms > 0 ? 1e3 * static_cast<double>(metrics.global_batch) / metrics.elapsed_ms
                             : 0;
  const double flops_of_rank = start.megatron_flops * samples_per_second / start.ranks;
  std::string line = fmt::format(
      "iteration {:8}/{:8} | consumed samples: {:12} | consumed tokens: {:12} | elapsed time per "
      "iteration (ms): {:.1f} | learning rate: {:.3E} | global batch size: {:5} | lm loss: {:.6E} "
      "| loss scale: {:.1f} | grad norm: {:.3f}{} | actual seqlen: {:5} | ",
      metrics.iteration, start.train_iters, metrics.consumed_samples, metrics.consumed_tokens,
      metrics.elapsed_ms, metrics.learning_rate, metrics.global_batch,
      unsigned_nan(metrics.lm_loss), metrics.loss_scale, unsigned_nan(metrics.grad_norm),
      optional_figures(metrics), start.sequence);
  line += fmt::format(
      "number of skipped iterations: {} | number of nan iterations: {} | samples per second: "
      "{:.3f} | TFLOPs: {:.3f} | tokens per second: {:.0f} | TFLOP/s: {:.3f} | share of peak: "
      "{:.1f} % | time left: {} |",
      counts.skipped, counts.not_finite, samples_per_second, 1e-12 * flops_of_rank,
      metrics.tokens_per_second, metrics.model_tflops, 100 * metrics.share_of_peak,
      hours_text(seconds_left(start, metrics.iteration, seconds)));
  return line;
}

std::string brief_line(const RunStart& start, const StepMetrics& metrics, double seconds) {
  return fmt::format(
      "iteration {}/{} | loss {:.4f} | lr {:.2e} | grad norm {:.2f}{} | {:.0f} tokens/s "
      "({:.0f} % of peak) | {} left",
      metrics.iteration, start.train_iters, unsigned_nan(metrics.lm_loss), metrics.learning_rate,
      unsigned_nan(metrics.grad_norm), optional_figures(metrics), metrics.tokens_per_second,
      100 * metrics.share_of_peak, hours_text(seconds_left(start, metrics.iteration, seconds)));
}

void LogSink::on_start(const RunStart& start) {
  start_ = start;
  interval_ = IntervalMeans(start.skipped);
  started_ = std::chrono::steady_clock::now();
}

void LogSink::on_step(const StepMetrics& metrics) {
  if (start_.rank != 0) return;
  if (!metrics.tasks.empty()) {
    std::string figures;
    for (const TaskFigure& one : metrics.tasks)
      figures += fmt::format("{}{}: {:.4f}", figures.empty() ? "" : " | ", one.name, one.value);
    log_.info(fmt::format("tasks at iteration {} | {} |", metrics.iteration, figures));
  }
  interval_.add(metrics);
  if (metrics.iteration % options_.interval != 0 && metrics.iteration != start_.train_iters) return;
  const double seconds = seconds_since(started_);
  const StepMetrics means = interval_.means();
  log_.info(options_.brief ? brief_line(start_, means, seconds)
                           : megatron_line(start_, means, interval_.counts(), seconds));
  interval_ = IntervalMeans(metrics.skipped);
  log_timers(metrics.timers);
}

void LogSink::log_timers(const std::vector<TimerTimes>& timers) {
  for (const std::string& line : timer_lines(timers, options_.timers)) log_.info(line);
}

void LogSink::on_validation(const RunValidation& validation) {
  if (start_.rank != 0) return;
  if (!validation.loss) {
    log_.info(fmt::format("validation at iteration {}{} |", validation.iteration,
                          text_of(validation.figures)));
    return;
  }
  const bool tests = validation.set == HeldOutSet::kTest;
  const std::string of = validation.name.empty()
                             ? (tests ? " on test set" : "")
                             : fmt::format(" on {}{}", tests ? "test set " : "", validation.name);
  log_.info(fmt::format(
      "validation loss at iteration {}{} | lm loss value: {:.6E}{}{} |", validation.iteration, of,
      *validation.loss,
      start_.labels_texts ? "" : fmt::format(" | lm loss PPL: {:.6E}", std::exp(*validation.loss)),
      text_of(validation.figures)));
}

void LogSink::on_save(const RunSave& save) {
  if (start_.rank != 0) return;
  log_.info(fmt::format(
      "saved {} in {:.1f} s{}", save.folder.string(), save.seconds,
      save.in_background ? fmt::format(", of which training waited {:.2f} s", save.blocked_seconds)
                         : ""));
  log_timers(save.timers);
}

}  // namespace piton
