// A run's log: a line for each interval of iterations, in Megatron's form or a brief form for a
// terminal; validation, saves and messages.
#pragma once

#include <chrono>
#include <string>

#include "train/sinks/interval_means.h"
#include "train/sinks/run_sink.h"

namespace piton {

// Whole seconds to the end of the run, by the mean of the steps so far. `seconds`: since the start
// of this process's part of the run.
std::int64_t seconds_left(const RunStart& start, std::int64_t iteration, double seconds);

// "iteration        3/      12 | consumed samples: ... |", as printed by Megatron-LM and
// AscendSpeed. "TFLOPs" are theirs, of a rank (megatron_flops.h); after it rates of the model, of
// all ranks, and the time left.
std::string megatron_line(const RunStart& start, const StepMetrics& metrics,
                          const IntervalCounts& counts, double seconds);

// "iteration 3/12 | loss 5.5412 | ...", which fits 120 columns.
std::string brief_line(const RunStart& start, const StepMetrics& metrics, double seconds);

struct LogSinkOptions {
  std::int64_t interval = 1;  // iterations between lines; the last iteration has one anyway
  bool brief = false;
  std::string timers = "minmax";  // --timing-log-option
};

// Writes only on the first rank.
class LogSink final : public RunSink {
 public:
  LogSink(Log& log, const LogSinkOptions& options) : log_(log), options_(options) {}
  void on_message(LogLevel level, std::string_view line) override { log_.write(level, line); }
  void on_start(const RunStart& start) override;
  void on_step(const StepMetrics& metrics) override;
  void on_validation(const RunValidation& validation) override;
  void on_save(const RunSave& save) override;

 private:
  void log_timers(const std::vector<TimerTimes>& timers);

  Log& log_;
  LogSinkOptions options_;
  RunStart start_;
  std::chrono::steady_clock::time_point started_;
  IntervalMeans interval_;  // since the last line
};

}  // namespace piton
