// Receivers of a run's events: the log, metrics.jsonl, a progress display, a calling program.
//
// A sink receives the events of its rank, in order, on the thread that drives the trainer:
//
//   on_message*  on_start  ( on_part*  on_step  ( on_part*  on_validation+ )?  on_save? )*
//   ( on_part*  on_validation+ )?  on_finish
//
// with messages at any time. The last evaluation is of the test set. Of several sets each is
// reported, then all together. A save in the background
// (--async-save) is reported when it is over: before a later step, or before on_finish. Messages
// come only on the first rank: all ranks would say the same. An error ends a run without on_finish.
// An exception of a sink ends the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "parallel/schedule.h"
#include "train/sinks/metrics.h"

namespace piton {

// Known once everything is open.
struct RunStart {
  int rank = 0;
  int ranks = 1;
  std::int64_t iteration = 0;      // iterations done before; 0 for a new run
  std::int64_t skipped = 0;        // of these, updates that were skipped
  std::int64_t train_iters = 0;    // of the whole run
  std::int64_t eval_iters = 0;     // batches of an evaluation, of all its sets
  std::int64_t global_batch = 0;   // samples of an update; where it grows, of the last ones
  std::int64_t sequence = 0;       // tokens of a sample
  std::int64_t micro_batches = 0;  // of that, on each data-parallel rank
  double megatron_flops = 0;       // of a sample (train/sinks/megatron_flops.h)
  bool labels_texts = false;       // the model predicts no tokens: its loss has no perplexity
};

// A pass over one micro-batch begins.
struct RunPart {
  std::int64_t iteration =
      0;  // of the step that it belongs to, or of the one before the evaluation
  std::int64_t evaluation = 0;  // batch of an evaluation, from 1; 0: part of a step
  Pass pass = Pass::kForward;
  int micro_batch = 0;
  std::int64_t micro_batches = 1;  // of the step or the batch of the evaluation
};

// Samples that a run does not train on.
enum class HeldOutSet : std::uint8_t { kValidation, kTest };

struct RunValidation {
  HeldOutSet set = HeldOutSet::kValidation;
  std::string name;            // of one set of several; "": all
  std::int64_t iteration = 0;  // done before
  // Mean over the tokens of all batches and ranks; unset: the stage has none.
  std::optional<double> loss;
  std::vector<ObjectiveFigure> figures;
};

struct RunSave {
  std::int64_t iteration = 0;
  std::filesystem::path folder;
  bool in_background = false;      // its files were written during steps
  double seconds = 0;              // from its start to its end
  double blocked_seconds = 0;      // of that, training waited: all of it unless in the background
  std::vector<TimerTimes> timers;  // of the wait; with --timing-log-level
};

class RunSink {
 public:
  virtual ~RunSink() = default;
  virtual void on_message(LogLevel, std::string_view) {}
  virtual void on_start(const RunStart&) {}
  // May be called a thousand times per second.
  virtual void on_part(const RunPart&) {}
  // If an evaluation is due after the step, it was made before, and its loss is in the metrics.
  virtual void on_step(const StepMetrics&) {}
  virtual void on_validation(const RunValidation&) {}
  virtual void on_save(const RunSave&) {}
  virtual void on_finish() {}
};

// All sinks of a run as one. As a Log, it passes lines to on_message.
class RunSinks final : public RunSink, public Log {
 public:
  // The sinks must outlive the run. `leads`: this is the first rank, which passes on messages.
  RunSinks(std::vector<RunSink*> sinks, bool leads) : sinks_(std::move(sinks)), leads_(leads) {}
  // Adds a sink that receives everything before the others.
  void add_first(RunSink& sink) { sinks_.insert(sinks_.begin(), &sink); }

  void write(LogLevel level, std::string_view line) override { on_message(level, line); }
  void on_message(LogLevel level, std::string_view line) override {
    if (!leads_) return;
    for (RunSink* sink : sinks_) sink->on_message(level, line);
  }
  void on_start(const RunStart& start) override {
    for (RunSink* sink : sinks_) sink->on_start(start);
  }
  void on_part(const RunPart& part) override {
    for (RunSink* sink : sinks_) sink->on_part(part);
  }
  void on_step(const StepMetrics& metrics) override {
    for (RunSink* sink : sinks_) sink->on_step(metrics);
  }
  void on_validation(const RunValidation& validation) override {
    for (RunSink* sink : sinks_) sink->on_validation(validation);
  }
  void on_save(const RunSave& save) override {
    for (RunSink* sink : sinks_) sink->on_save(save);
  }
  void on_finish() override {
    for (RunSink* sink : sinks_) sink->on_finish();
  }

 private:
  std::vector<RunSink*> sinks_;
  bool leads_;
};

}  // namespace piton
