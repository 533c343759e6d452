// One Philox block per draw; only one of its four words is used.
#include "kernels/reference/mask.h"

namespace piton::reference {

MaskDraws::MaskDraws(const Dropout& dropout) : dropout_(dropout) {
  if (dropout.probability == 0) return;
  first_sample_ = *dropout.rows.consumed_samples.data<std::int64_t>() + dropout.rows.sample_index;
}

double MaskDraws::factor(std::int64_t sample, std::int64_t head, std::int64_t position,
                         std::int64_t column) const {
  const double probability = dropout_.probability;
  if (probability == 0) return 1;
  const PhiloxBlock words =
      philox(dropout_.key,
             mask_counter(static_cast<std::uint64_t>(first_sample_ + sample),
                          static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(position),
                          static_cast<std::uint32_t>(column)));
  const bool kept = words[static_cast<std::size_t>(column % 4)] >= drop_threshold(probability);
  return kept ? 1 / (1 - probability) : 0;
}

double MaskDraws::row_factor(std::int64_t row, std::int64_t channel) const {
  const std::int64_t global = dropout_.rows.first_row + row;
  const std::int64_t sequence = dropout_.rows.sequence;
  return factor(global / sequence, 0, dropout_.rows.position(global % sequence),
                dropout_.rows.first_column + channel);
}

}  // namespace piton::reference
