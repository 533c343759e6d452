// How a model lies on this rank: which layers, which heads, which rows, and the vocabulary padding.
#pragma once

#include <cstdint>

#include "comm/mesh.h"
#include "model/config.h"

namespace piton {

struct ModelLayout {
  Mesh* mesh = nullptr;
  bool sequence_parallel = false;
  int linear_slices = 1;                   // rows of a linear cut to overlap its collective
  bool recompute = false;                  // full: each block keeps its input only
  std::int64_t vocabulary_multiple = 128;  // padded to a multiple of this x tensor size,
  std::int64_t vocabulary_rows = 0;        // or to exactly this, if above 0

  std::int64_t padded_vocabulary(std::int64_t vocabulary) const;
  // Throws Error(kUsage) naming the flag if heads, groups, ffn or layers do not divide.
  void check(const ModelConfig& config, int chunks) const;
};

}  // namespace piton
