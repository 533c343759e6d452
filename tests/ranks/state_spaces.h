// Layers of Mamba-2 and short convolutions of small models, whose heads and channels four ranks
// divide.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "model/state_space_options.h"

namespace piton::ranks {

inline StateSpaceFacts small_state_spaces(std::int64_t groups,
                                          std::vector<std::int64_t> attention_layers = {1}) {
  return {.attention_layers = std::move(attention_layers),
          .heads = 8,
          .groups = groups,
          .head_size = 6,
          .state_size = 5,
          .width = 3};
}

inline ShortConvolutionFacts small_convolutions(std::vector<std::int64_t> attention_layers = {1}) {
  return {.attention_layers = std::move(attention_layers), .width = 4, .biases = true};
}

}  // namespace piton::ranks
