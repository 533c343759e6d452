// The number of weights of a model by its tensors.
#pragma once

#include "model/canonical_tensors.h"

namespace piton::test {

inline std::int64_t elements_of(const ModelConfig& config) {
  std::int64_t sum = 0;
  for (const CanonicalShape& one : canonical_tensors(config)) sum += one.shape.elements();
  return sum;
}

}  // namespace piton::test
