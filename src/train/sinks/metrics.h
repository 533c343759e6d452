// DIR/metrics.jsonl: one JSON object per step, written by one rank. A resume truncates it to the
// step from which it continues, so that no step occurs twice.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files/appended_file.h"
#include "comm/communicator.h"
#include "session/objective.h"
#include "tensor/arena.h"
#include "train/trace/run_timers.h"

namespace piton {

// A score of the model on a task: "hellaswag,acc_norm".
struct TaskFigure {
  std::string name;
  double value = 0;
};

// Of one of several validation sets.
struct SetLoss {
  std::string name;
  double loss = 0;
};

// What the model continues a prompt of --sample-prompts with.
struct PromptAnswer {
  std::string prompt;
  std::string answer;
};

struct StepMetrics {
  std::int64_t iteration = 0;
  std::int64_t consumed_samples = 0;
  std::int64_t consumed_tokens = 0;
  std::int64_t global_batch = 0;  // samples of this step
  double lm_loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  double loss_scale = 1;
  double tokens_per_second = 0;  // of all ranks
  double model_tflops = 0;       // of all ranks
  double share_of_peak = 0;      // 0: the peak was not measured
  double elapsed_ms = 0;
  std::int64_t skipped = 0;                // steps skipped since the start of the run
  bool resumed = false;                    // the first step after a resume
  MemoryCounts memory;                     // of the writing rank
  std::int64_t offloaded_bytes = 0;        // of the writing rank, in no kind of `memory`
  TrafficCounts traffic;                   // of the writing rank, since its start
  std::optional<double> params_norm;       // with --log-params-norm
  std::optional<std::int64_t> num_zeros;   // of the gradient; with --log-num-zeros-in-grad
  std::optional<double> validation_loss;   // of all sets
  std::vector<SetLoss> validation_losses;  // of each, if there are several
  std::vector<PromptAnswer> answers;       // after this step; with --sample-prompts
  std::vector<TaskFigure> tasks;           // after this step; with --eval-tasks
  std::vector<ObjectiveFigure> figures;    // of an objective: of this step, and of the validation
  std::vector<ObjectiveFigure> validation_figures;
  std::vector<TimerTimes> timers;  // mean of a step since the last ones; with --timing-log-level
};

std::string to_json(const StepMetrics& metrics);

// The metrics of every step in the file, in order; numbers that were not finite are NaN. Memory has
// only the highest total, traffic is empty. Throws Error(kData) as MetricsFile does.
std::vector<StepMetrics> read_metrics(const std::filesystem::path& path);

class MetricsFile {
 public:
  // Keeps the lines of an existing file up to `iteration`. Throws Error(kData) if a line of it is
  // not a JSON object with an "iteration". `may_restore`: as of AppendedFile.
  MetricsFile(const std::filesystem::path& path, std::int64_t iteration,
              AppendedFile::MayRestore may_restore = {});

  // Writes one line (base/files/appended_file.h). Returns why it has to wait, or "".
  std::string write(const StepMetrics& metrics);
  // Writes lines of other contents, of files that are cut in the same way.
  std::string write_lines(const std::string& lines) { return lines_->append(lines); }
  // What happened to the file, once; "": nothing.
  std::string take_note() { return lines_->take_note(); }
  // Writes the waiting lines. Throws Error(kData) if they cannot be written.
  void finish() { lines_->finish(); }

 private:
  std::unique_ptr<AppendedFile> lines_;
};

}  // namespace piton
