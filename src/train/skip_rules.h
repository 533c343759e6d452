// What a run does about updates that the optimizer skipped: it says why, and ends after
// --max-consecutive-skips of them in a row.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/log.h"
#include "optim/optimizer_options.h"
#include "session/session.h"

namespace piton {

// A step that is over.
struct CountedStep {
  std::int64_t iteration = 0;  // number of the step, from 1
  StepReport report;
  double next_loss_scale = 1;
  // Names of the parameters whose gradients were not finite. Called only before the run ends; may
  // be collective.
  std::function<std::vector<std::string>()> parameters_not_finite;
};

class SkipRules {
 public:
  // `most`: --max-consecutive-skips. `log` must outlive it.
  SkipRules(std::int64_t most, const OptimizerOptions& options, Log& log)
      : most_(most), options_(options), log_(log) {}

  // Not counted: a spike (--skip-spikes), and an overflow by which a dynamic loss scale finds its
  // place. Throws Error(kDiverged) for the last one of `most` in a row. It names the layer in which
  // backward met the first values that are not finite.
  void count(const CountedStep& step);

  void restart() { in_a_row_ = 0; }

  // Counted skips since the last update.
  std::int64_t in_a_row() const { return in_a_row_; }

 private:
  std::int64_t most_;
  OptimizerOptions options_;
  Log& log_;
  std::int64_t in_a_row_ = 0;
};

}  // namespace piton
