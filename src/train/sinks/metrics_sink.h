// A run's metrics.jsonl (train/sinks/metrics.h): one line per step.
#pragma once

#include "train/sinks/run_sink.h"

namespace piton {

class MetricsSink final : public RunSink {
 public:
  // Warns `log` once if lines have to wait for space on the disk.
  MetricsSink(MetricsFile& file, Log& log) : file_(file), log_(log) {}
  // A full disk must not lose the steps: their lines wait for space, as saves do.
  void on_step(const StepMetrics& metrics) override;
  // Throws Error(kData) if lines are still waiting.
  void on_finish() override { file_.finish(); }

 private:
  MetricsFile& file_;
  Log& log_;
  bool waits_ = false;
};

}  // namespace piton
