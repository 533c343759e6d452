#include "session/prompt_reach.h"

#include "base/error.h"

namespace piton {

std::vector<std::int32_t> prompt_reach(const MicroBatch& batch) {
  const std::int64_t rows = batch.samples * batch.sequence;
  PITON_ASSERT(std::ssize(batch.labels) == rows && std::ssize(batch.loss_mask) == rows,
               "labels of {} rows, {} tokens", batch.labels.size(), rows);
  std::vector<std::int32_t> reach(static_cast<std::size_t>(rows));
  const auto segment = [&](std::int64_t row) {
    return batch.segments.empty() ? 0 : batch.segments[static_cast<std::size_t>(row)];
  };
  for (std::int64_t begin = 0; begin < rows;) {
    const std::int64_t sample = begin / batch.sequence;
    const std::int64_t last = (sample + 1) * batch.sequence;
    std::int64_t end = begin;
    std::int64_t labelled = -1;
    for (; end < last && segment(end) == segment(begin); ++end) {
      const auto at = static_cast<std::size_t>(end);
      if (labelled < 0 && batch.labels[at] >= 0 && batch.loss_mask[at] != 0) labelled = end;
    }
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t seen = labelled < 0 ? row : labelled;
      reach[static_cast<std::size_t>(row)] =
          static_cast<std::int32_t>(seen - sample * batch.sequence);
    }
    begin = end;
  }
  return reach;
}

}  // namespace piton
