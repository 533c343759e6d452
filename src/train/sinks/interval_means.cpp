#include "train/sinks/interval_means.h"

#include <cmath>

#include "base/error.h"

namespace piton {

void IntervalMeans::add(const StepMetrics& step) {
  const std::int64_t skipped = steps_ > 0 ? last_.skipped : skipped_before_;
  if (step.skipped > skipped) {
    skipped_loss_sum_ += step.lm_loss;
  } else {
    ++updates_;
    loss_sum_ += step.lm_loss;
  }
  ++steps_;
  if (!std::isfinite(step.lm_loss)) ++not_finite_;
  milliseconds_ += step.elapsed_ms;
  tokens_ += step.tokens_per_second * step.elapsed_ms;
  operations_ += step.model_tflops * step.elapsed_ms;
  share_sum_ += step.share_of_peak * step.elapsed_ms;
  add_figures(step.figures, figures_);
  last_ = step;
}

StepMetrics IntervalMeans::means() const {
  PITON_ASSERT(steps_ > 0, "no step since the last line");
  StepMetrics means = last_;
  means.lm_loss = updates_ > 0 ? loss_sum_ / static_cast<double>(updates_)
                               : skipped_loss_sum_ / static_cast<double>(steps_);
  means.elapsed_ms = milliseconds_ / static_cast<double>(steps_);
  if (milliseconds_ > 0) {
    means.tokens_per_second = tokens_ / milliseconds_;
    means.model_tflops = operations_ / milliseconds_;
    means.share_of_peak = share_sum_ / milliseconds_;
  }
  means.figures = figures_;
  return means;
}

}  // namespace piton
