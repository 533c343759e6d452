// A run's figures for TensorBoard, under the tags that Megatron-LM gives them.
//
//   "lm loss", "learning-rate", "grad-norm", "loss-scale", "batch-size", "iteration-time"
//   (seconds), "tokens-per-second", "mem-allocated-bytes" (the arena's highest), "lm loss
//   validation", "lm loss validation ppl"
//
// Each start of a run makes a file of its own. That of a resume voids the steps that are done anew:
// so no step is shown twice, and all tags count iterations (the rule has one count for all tags).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/appended_file.h"
#include "train/run_sink.h"

namespace piton {

class TensorBoardSink final : public RunSink {
 public:
  // A new file in `folder`, which is made where it is missing. `iteration`: done before. `log` is
  // warned once where records have to wait for room on the disk. Throws Error(kData) if the file
  // cannot be made.
  TensorBoardSink(const std::filesystem::path& folder, std::int64_t iteration, Log& log);

  void on_step(const StepMetrics& metrics) override;
  void on_validation(const RunValidation& validation) override;
  // Throws Error(kData) where records still wait.
  void on_finish() override { file_->finish(); }

 private:
  void append(const std::string& record);

  Log& log_;
  std::optional<AppendedFile> file_;
  bool waits_ = false;
};

}  // namespace piton
