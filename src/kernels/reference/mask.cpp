// One Philox block per draw; only one of its four words is used.
#include "kernels/reference/mask.h"

namespace piton::reference {
namespace {

struct DrawnPlace {
  std::int64_t sample = 0;  // of the micro-batch
  std::int64_t position = 0;
};

DrawnPlace place_of(const MaskRows& rows, std::int64_t row) {
  const std::int64_t unsplit = rows.first_row + row;
  return {unsplit / rows.sequence, rows.position(unsplit % rows.sequence)};
}

std::int64_t first_sample(const MaskRows& rows) {
  return *rows.consumed_samples.data<std::int64_t>() + rows.sample_index;
}

std::uint32_t word_at(PhiloxKey key, std::int64_t sample, std::int64_t head, std::int64_t position,
                      std::int64_t column) {
  return philox(
      key, mask_counter(static_cast<std::uint64_t>(sample), static_cast<std::uint32_t>(head),
                        static_cast<std::uint32_t>(position),
                        static_cast<std::uint32_t>(column)))[static_cast<std::size_t>(column % 4)];
}

}  // namespace

std::uint32_t drawn_word(PhiloxKey key, const MaskRows& rows, std::int64_t row,
                         std::int64_t channel) {
  const DrawnPlace place = place_of(rows, row);
  return word_at(key, first_sample(rows) + place.sample, 0, place.position,
                 rows.first_column + channel);
}

MaskDraws::MaskDraws(const Dropout& dropout) : dropout_(dropout) {
  if (dropout.probability == 0) return;
  first_sample_ = first_sample(dropout.rows);
}

double MaskDraws::factor(std::int64_t sample, std::int64_t head, std::int64_t position,
                         std::int64_t column) const {
  const double probability = dropout_.probability;
  if (probability == 0) return 1;
  const std::uint32_t word = word_at(dropout_.key, first_sample_ + sample, head, position, column);
  return word >= drop_threshold(probability) ? 1 / (1 - probability) : 0;
}

double MaskDraws::row_factor(std::int64_t row, std::int64_t channel) const {
  if (dropout_.probability == 0) return 1;
  const DrawnPlace place = place_of(dropout_.rows, row);
  return factor(place.sample, 0, place.position, dropout_.rows.first_column + channel);
}

}  // namespace piton::reference
