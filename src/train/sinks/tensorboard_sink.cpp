#include "train/sinks/tensorboard_sink.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/files/files.h"
#include "base/files/host_name.h"
#include "train/sinks/event_file.h"

namespace piton {
namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// TensorBoard looks for "tfevents" and reads the files of a folder in the order of their names. A
// name begins with the time, in seconds of ten digits; a counter distinguishes files of one second.
std::filesystem::path unused_name(const std::filesystem::path& folder) {
  const auto seconds = static_cast<std::int64_t>(wall_time());
  for (int other = 0;; ++other) {
    std::filesystem::path path =
        folder / fmt::format("events.out.tfevents.{:010}.{:03}.{}", seconds, other, host_name());
    if (!std::filesystem::exists(path)) return path;
  }
}

}  // namespace

TensorBoardSink::TensorBoardSink(const std::filesystem::path& folder, std::int64_t iteration,
                                 bool timers, Log& log, AppendedFile::MayRestore may_restore)
    : log_(log), timers_(timers) {
  create_folders(folder);
  const std::filesystem::path path = unused_name(folder);
  std::string head = event_file_head(wall_time());
  if (iteration > 0) head += event_restart(wall_time(), iteration + 1);
  write_text_file(path, head);
  file_.emplace(path, std::move(may_restore));
}

void TensorBoardSink::on_step(const StepMetrics& metrics) {
  append(event_record(
      wall_time(), metrics.iteration,
      {{"lm loss", metrics.lm_loss},
       {"learning-rate", metrics.learning_rate},
       {"grad-norm", metrics.grad_norm},
       {"loss-scale", metrics.loss_scale},
       {"batch-size", static_cast<double>(metrics.global_batch)},
       {"iteration-time", metrics.elapsed_ms * 1e-3},
       {"tokens-per-second", metrics.tokens_per_second},
       {"mem-allocated-bytes", static_cast<double>(metrics.memory.peak_total_bytes)}}));
  // Megatron-LM's names.
  if (metrics.num_zeros) {
    append(event_record(wall_time(), metrics.iteration,
                        {{"num-zeros", static_cast<double>(*metrics.num_zeros)}}));
  }
  if (metrics.params_norm) {
    append(event_record(wall_time(), metrics.iteration, {{"params-norm", *metrics.params_norm}}));
  }
  for (const TaskFigure& one : metrics.tasks)
    append(event_record(wall_time(), metrics.iteration, {{one.name, one.value}}));
  for (const ObjectiveFigure& one : metrics.figures) {
    if (one.count == 0) continue;
    append(event_record(wall_time(), metrics.iteration, {{one.name, one.mean()}}));
  }
  if (!timers_) return;
  for (const TimerTimes& one : metrics.timers) {
    append(
        event_record(wall_time(), metrics.iteration, {{one.name + "-time", one.most_ms() * 1e-3}}));
  }
}

void TensorBoardSink::on_validation(const RunValidation& validation) {
  std::string set = validation.set == HeldOutSet::kTest ? "test" : "validation";
  if (!validation.name.empty()) set += " " + validation.name;
  const std::string loss = "lm loss " + set;
  const std::string perplexity = loss + " ppl";
  if (validation.loss) {
    std::vector<EventScalar> scalars{{loss, *validation.loss}};
    if (!labels_texts_) {  // bounded as in Megatron-LM
      scalars.push_back({perplexity, std::exp(std::min(20.0, *validation.loss))});
    }
    append(event_record(wall_time(), validation.iteration, scalars));
  }
  for (const ObjectiveFigure& one : validation.figures) {
    if (one.count == 0) continue;
    append(event_record(wall_time(), validation.iteration, {{one.name + " " + set, one.mean()}}));
  }
}

void TensorBoardSink::append(const std::string& record) {
  const std::string why = file_->append(record);
  const std::string note = file_->take_note();
  if (!note.empty()) log_.warning(note);
  if (!why.empty() && !waits_) {
    log_.warning(fmt::format("{}; its records are kept and tried again", why));
  }
  waits_ = !why.empty();
}

}  // namespace piton
