// A run on a progress display: finished iterations, and the micro-batches of the current step.
#pragma once

#include <chrono>
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
  void show(std::int64_t done, const std::string& note);

  Progress& progress_;
  RunStart start_;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point shown_;  // last time within a step
  std::string last_;  // note of the last step, shown before the current part
};

}  // namespace piton
