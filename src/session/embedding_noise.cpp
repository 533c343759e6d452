#include "session/embedding_noise.h"

#include <algorithm>
#include <cmath>

namespace piton {

std::vector<float> noise_bounds(const MicroBatch& batch, double alpha, std::int64_t hidden) {
  std::vector<float> bounds(static_cast<std::size_t>(batch.samples * batch.sequence));
  const auto segment = [&](std::int64_t row) {
    return batch.segments.empty() ? 0 : batch.segments[static_cast<std::size_t>(row)];
  };
  for (std::int64_t begin = 0; begin < std::ssize(bounds);) {
    const std::int64_t last = (begin / batch.sequence + 1) * batch.sequence;
    std::int64_t end = begin;
    while (end < last && segment(end) == segment(begin)) ++end;
    const auto numbers = static_cast<double>((end - begin) * hidden);
    const double bound = segment(begin) == kPaddingSegment ? 0 : alpha / std::sqrt(numbers);
    std::fill(bounds.begin() + begin, bounds.begin() + end, static_cast<float>(bound));
    begin = end;
  }
  return bounds;
}

}  // namespace piton
