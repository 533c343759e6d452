#include "data/masked/masked_data.h"

#include <numeric>

#include "base/error.h"

namespace piton {

void MaskedData::set_row(std::span<const std::int32_t> ids, Sample& sample) const {
  PITON_ASSERT(static_cast<std::int64_t>(ids.size()) <= sequence, "{} tokens in a row of {}",
               ids.size(), sequence);
  const auto size = static_cast<std::size_t>(sequence);
  sample = {};
  sample.tokens.assign(ids.begin(), ids.end());
  sample.tokens.resize(size, vocabulary->pad);
  sample.positions.resize(size);
  std::iota(sample.positions.begin(), sample.positions.end(), 0);
  sample.segments.resize(size);
  for (std::size_t i = 0; i < size; ++i)
    sample.segments[i] = sample.tokens[i] == vocabulary->pad ? kPaddingSegment : 0;
  sample.length = static_cast<std::int64_t>(ids.size());
}

}  // namespace piton
