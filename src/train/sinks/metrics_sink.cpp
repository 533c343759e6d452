#include "train/sinks/metrics_sink.h"

#include <fmt/format.h>

namespace piton {

void MetricsSink::on_step(const StepMetrics& metrics) {
  const std::string why = file_.write(metrics);
  const std::string note = file_.take_note();
  if (!note.empty()) log_.warning(note);
  if (!why.empty() && !waits_) {
    log_.warning(fmt::format("{}; its lines are kept and tried again", why));
  }
  waits_ = !why.empty();
}

}  // namespace piton
