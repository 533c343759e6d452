// A run's figures for TensorBoard, with Megatron-LM's tags.
//
//   "lm loss", "learning-rate", "grad-norm", "loss-scale", "batch-size", "iteration-time"
//   (seconds), "tokens-per-second", "mem-allocated-bytes" (the arena's highest), "lm loss
//   validation", "lm loss validation ppl"; "test" in place of "validation" for the test set
//
// Each start of a run makes a new file. That of a resume invalidates the steps that are done again,
// so no step is shown twice. All tags count iterations, because invalidation has one step for all
// tags.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/files/appended_file.h"
#include "train/sinks/run_sink.h"

namespace piton {

class TensorBoardSink final : public RunSink {
 public:
  // Makes a new file in `folder`, which is created if it is missing. `iteration`: done before.
  // `timers`: also writes the largest times of parts of a step, "forward-backward-time" and so on,
  // in seconds. Warns `log` once if records have to wait for space on the disk. Throws Error(kData)
  // if the file cannot be made. `may_restore`: as of AppendedFile.
  TensorBoardSink(const std::filesystem::path& folder, std::int64_t iteration, bool timers,
                  Log& log, AppendedFile::MayRestore may_restore = {});

  void on_start(const RunStart& start) override { labels_texts_ = start.labels_texts; }
  void on_step(const StepMetrics& metrics) override;
  void on_validation(const RunValidation& validation) override;
  // Throws Error(kData) if records are still waiting.
  void on_finish() override { file_->finish(); }

 private:
  void append(const std::string& record);

  Log& log_;
  bool timers_;
  std::optional<AppendedFile> file_;
  bool waits_ = false;
  bool labels_texts_ = false;
};

}  // namespace piton
