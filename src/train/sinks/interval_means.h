// What a line of the log says of the steps since the line before, as Megatron-LM's training_log()
// does: means of losses and figures over the steps that updated the weights, and of times over all.
#pragma once

#include <cstdint>
#include <vector>

#include "train/sinks/metrics.h"

namespace piton {

// Of the steps since a line.
struct IntervalCounts {
  std::int64_t skipped = 0;     // updates
  std::int64_t not_finite = 0;  // losses
};

class IntervalMeans {
 public:
  // `earlier_skipped`: updates that the run skipped before its next step.
  explicit IntervalMeans(std::int64_t earlier_skipped = 0) : skipped_before_(earlier_skipped) {}

  void add(const StepMetrics& step);

  // The last step with these means in place of its loss, its times and its rates. The mean loss is
  // of all steps if all updates were skipped. There must be a step.
  StepMetrics means() const;
  IntervalCounts counts() const { return {last_.skipped - skipped_before_, not_finite_}; }

 private:
  StepMetrics last_;
  std::int64_t skipped_before_;
  std::int64_t steps_ = 0;
  std::int64_t updates_ = 0;
  std::int64_t not_finite_ = 0;
  double loss_sum_ = 0;          // of the steps with an update
  double skipped_loss_sum_ = 0;  // of the others
  double milliseconds_ = 0;
  double tokens_ = 0;      // a second, times milliseconds
  double operations_ = 0;  // in TFLOP/s, times milliseconds
  double share_sum_ = 0;   // of the peak, times milliseconds
  std::vector<ObjectiveFigure> figures_;
};

}  // namespace piton
