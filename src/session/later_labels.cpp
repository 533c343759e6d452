#include "session/later_labels.h"

#include "data/samples/sample.h"

namespace piton {

MicroBatch moved_by_one(const MicroBatch& batch) {
  MicroBatch moved = batch;
  const std::int64_t rows = batch.samples * batch.sequence;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto at = static_cast<std::size_t>(row);
    const bool ends = (row + 1) % batch.sequence == 0 ||
                      (!batch.segments.empty() && batch.segments[at + 1] != batch.segments[at]);
    moved.tokens[at] = ends ? 0 : batch.tokens[at + 1];
    moved.positions[at] = ends ? 0 : batch.positions[at + 1];
    moved.labels[at] = ends ? kNoLabel : batch.labels[at + 1];
    moved.loss_mask[at] = ends ? 0 : batch.loss_mask[at + 1];
  }
  return moved;
}

}  // namespace piton
