#include "data/masked/masked_data.h"

#include <numeric>

#include "base/error.h"

namespace piton {

void MaskedData::set_row(std::span<const std::int32_t> ids, Sample& sample) const {
  PITON_ASSERT(static_cast<std::int64_t>(ids.size()) <= sequence, "{} tokens in a row of {}",
               ids.size(), sequence);
  const auto size = static_cast<std::size_t>(sequence);
  sample = {};
  sample.tokens.resize(size, 0);
  sample.positions.resize(size);
  std::iota(sample.positions.begin(), sample.positions.end(), 0);
  sample.segments.resize(size, kPaddingSegment);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    sample.tokens[i] = vocabulary->shown(ids[i]);
    if (ids[i] != vocabulary->pad) sample.segments[i] = 0;
  }
  sample.length = static_cast<std::int64_t>(ids.size());
}

}  // namespace piton
