// A run on a progress display: finished iterations, and the micro-batches of the current step.
#pragma once

#include <optional>
#include <string>

#include "base/progress.h"
#include "train/sinks/run_sink.h"

namespace piton {

// Shows only on the first rank.
class ProgressSink final : public RunSink {
 public:
  explicit ProgressSink(Progress& progress) : progress_(progress) {}
  void on_start(const RunStart& start) override;
  void on_part(const RunPart& part) override;
  void on_step(const StepMetrics& metrics) override;
  void on_finish() override { progress_.finish(); }

 private:
  Progress& progress_;
  RunStart start_;
  std::optional<ThrottledProgress> shown_;  // from the start of the run
  std::string last_;                        // note of the last step, shown before the current part
};

}  // namespace piton
