// The s + 1 ids of a sample of running text.
#pragma once

#include <cstdint>
#include <vector>

#include "data/samples/sample_source.h"

namespace piton {

inline std::vector<std::int32_t> ids_of(const SampleSource& source, std::int64_t index) {
  Sample sample;
  source.sample(index, sample);
  std::vector<std::int32_t> ids = std::move(sample.tokens);
  ids.push_back(sample.labels.back());
  return ids;
}

}  // namespace piton
