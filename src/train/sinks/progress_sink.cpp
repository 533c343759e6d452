#include "train/sinks/progress_sink.h"

#include <fmt/format.h>

namespace piton {
namespace {

constexpr double kShowInterval = 0.05;  // seconds between updates within a step

}  // namespace

void ProgressSink::on_start(const RunStart& start) {
  start_ = start;
  shown_.emplace(progress_, start.train_iters, kShowInterval);
}

void ProgressSink::on_part(const RunPart& part) {
  if (start_.rank != 0) return;
  shown_->at(part.evaluation > 0 ? part.iteration : part.iteration - 1, [&] {
    const std::string what =
        part.evaluation > 0 ? fmt::format("evaluation {} of {}", part.evaluation, start_.eval_iters)
                            : fmt::format("step {}, {}", part.iteration,
                                          part.pass == Pass::kForward ? "forward" : "backward");
    return fmt::format("{}{}: micro-batch {} of {}", last_, what, part.micro_batch + 1,
                       part.micro_batches);
  });
}

void ProgressSink::on_step(const StepMetrics& metrics) {
  if (start_.rank != 0) return;
  const std::string note =
      fmt::format("loss {:.4f}, {:.0f} tokens/s", metrics.lm_loss, metrics.tokens_per_second);
  shown_->show(metrics.iteration, note);
  last_ = note + "; ";
}

}  // namespace piton
