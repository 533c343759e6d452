#include "session/sequence_part.h"

#include "base/error.h"

namespace piton {

MicroBatch part_of_sequence(const MicroBatch& batch, const SequenceStretches& stretches) {
  PITON_ASSERT(batch.sequence % stretches.count() == 0, "{} rows in {} stretches", batch.sequence,
               stretches.count());
  PITON_ASSERT(batch.types.empty() && batch.pair_labels.empty() && batch.answers.empty(),
               "parts or answers of rows that are divided over {} ranks", stretches.ranks);
  const std::int64_t rows = stretches.rows(batch.sequence);
  MicroBatch part{.samples = batch.samples,
                  .sequence = 2 * rows,
                  .sample_index = batch.sample_index,
                  .segments = batch.segments};
  const auto cut = [&](const auto& whole, auto& own) {
    for (std::int64_t sample = 0; sample < batch.samples; ++sample) {
      for (const int stretch : {stretches.first(), stretches.second()}) {
        const auto begin = whole.begin() + sample * batch.sequence + stretch * rows;
        own.insert(own.end(), begin, begin + rows);
      }
    }
  };
  cut(batch.tokens, part.tokens);
  cut(batch.labels, part.labels);
  cut(batch.loss_mask, part.loss_mask);
  cut(batch.positions, part.positions);
  return part;
}

std::vector<std::int32_t> positions_of_rows(const MicroBatch& batch) {
  std::vector<std::int32_t> positions;
  for (std::int64_t row = 0; row < batch.samples * batch.sequence; ++row)
    positions.push_back(static_cast<std::int32_t>(row % batch.sequence));
  return positions;
}

std::vector<std::int32_t> by_stretch(const std::vector<std::int32_t>& rows, const MicroBatch& batch,
                                     int stretches) {
  const std::int64_t n = batch.sequence / stretches;
  std::vector<std::int32_t> ordered;
  for (int stretch = 0; stretch < stretches; ++stretch) {
    for (std::int64_t sample = 0; sample < batch.samples; ++sample) {
      const auto begin = rows.begin() + sample * batch.sequence + stretch * n;
      ordered.insert(ordered.end(), begin, begin + n);
    }
  }
  return ordered;
}

}  // namespace piton
