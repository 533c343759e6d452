// A run's metrics.jsonl (train/metrics.h): a line a step.
#pragma once

#include "train/run_sink.h"

namespace piton {

class MetricsSink final : public RunSink {
 public:
  // `log` is warned once where lines have to wait for room on the disk.
  MetricsSink(MetricsFile& file, Log& log) : file_(file), log_(log) {}
  // A full disk is no reason to lose the steps: the lines wait for room, like a save.
  void on_step(const StepMetrics& metrics) override;
  // Throws Error(kData) where lines still wait.
  void on_finish() override { file_.finish(); }

 private:
  MetricsFile& file_;
  Log& log_;
  bool waits_ = false;
};

}  // namespace piton
