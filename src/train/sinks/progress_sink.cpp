#include "train/sinks/progress_sink.h"

#include <fmt/format.h>

#include "base/seconds.h"

namespace piton {
namespace {

constexpr std::chrono::milliseconds kShowInterval{50};  // between updates within a step

}  // namespace

void ProgressSink::on_start(const RunStart& start) {
  start_ = start;
  started_ = std::chrono::steady_clock::now();
}

void ProgressSink::show(std::int64_t done, const std::string& note) {
  progress_.update({.done = done,
                    .total = start_.train_iters,
                    .seconds = seconds_since(started_),
                    .note = note});
}

void ProgressSink::on_part(const RunPart& part) {
  const auto now = std::chrono::steady_clock::now();
  if (start_.rank != 0 || now - shown_ < kShowInterval) return;
  shown_ = now;
  const std::string what =
      part.evaluation > 0 ? fmt::format("evaluation {} of {}", part.evaluation, start_.eval_iters)
                          : fmt::format("step {}, {}", part.iteration,
                                        part.pass == Pass::kForward ? "forward" : "backward");
  show(part.evaluation > 0 ? part.iteration : part.iteration - 1,
       fmt::format("{}{}: micro-batch {} of {}", last_, what, part.micro_batch + 1,
                   part.micro_batches));
}

void ProgressSink::on_step(const StepMetrics& metrics) {
  if (start_.rank != 0) return;
  const std::string note =
      fmt::format("loss {:.4f}, {:.0f} tokens/s", metrics.lm_loss, metrics.tokens_per_second);
  show(metrics.iteration, note);
  last_ = note + "; ";
}

}  // namespace piton
