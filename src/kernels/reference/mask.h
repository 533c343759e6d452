// Dropout masks from the global coordinates of each element (base/random/philox.h).
#pragma once

#include "kernels/call.h"

namespace piton::reference {

// The random word of an element of a matrix [rows, channels] at a site.
std::uint32_t drawn_word(PhiloxKey key, const MaskRows& rows, std::int64_t row,
                         std::int64_t channel);

// Draws for one site.
class MaskDraws {
 public:
  explicit MaskDraws(const Dropout& dropout);

  // The factor of an element: 0, or 1 / (1 - probability). `sample` counts from the micro-batch's
  // first sample; `position` is the position in the unsplit row.
  double factor(std::int64_t sample, std::int64_t head, std::int64_t position,
                std::int64_t column) const;

  // The same for row `row` of a matrix [rows, channels] of this micro-batch: head 0.
  double row_factor(std::int64_t row, std::int64_t channel) const;

 private:
  Dropout dropout_;
  std::int64_t first_sample_ = 0;
};

}  // namespace piton::reference
