#include "session/sequence_part.h"

#include "base/error.h"

namespace piton {
namespace {

template <typename Number>
std::vector<Number> own_rows(const std::vector<Number>& whole, const MicroBatch& batch,
                             const SequenceStretches& stretches) {
  const std::int64_t rows = stretches.rows(batch.sequence);
  std::vector<Number> own;
  for (std::int64_t sample = 0; sample < batch.samples; ++sample) {
    for (const int stretch : {stretches.first(), stretches.second()}) {
      const auto begin = whole.begin() + sample * batch.sequence + stretch * rows;
      own.insert(own.end(), begin, begin + rows);
    }
  }
  return own;
}

}  // namespace

std::vector<float> rows_of_part(const std::vector<float>& rows, const MicroBatch& batch,
                                const SequenceStretches& stretches) {
  return rows.empty() ? rows : own_rows(rows, batch, stretches);
}

std::vector<std::int32_t> rows_of_part(const std::vector<std::int32_t>& rows,
                                       const MicroBatch& batch,
                                       const SequenceStretches& stretches) {
  return rows.empty() ? rows : own_rows(rows, batch, stretches);
}

MicroBatch part_of_sequence(const MicroBatch& batch, const SequenceStretches& stretches) {
  PITON_ASSERT(batch.sequence % stretches.count() == 0, "{} rows in {} stretches", batch.sequence,
               stretches.count());
  PITON_ASSERT(batch.types.empty() && batch.pair_labels.empty() && batch.answers.empty(),
               "parts or answers of rows that are divided over {} ranks", stretches.ranks);
  return {.samples = batch.samples,
          .sequence = 2 * stretches.rows(batch.sequence),
          .sample_index = batch.sample_index,
          .tokens = own_rows(batch.tokens, batch, stretches),
          .labels = own_rows(batch.labels, batch, stretches),
          .loss_mask = own_rows(batch.loss_mask, batch, stretches),
          .positions = own_rows(batch.positions, batch, stretches),
          .segments = batch.segments};
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
