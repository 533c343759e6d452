// The part of a model on this rank: which layers, which heads, which rows, and the vocabulary
// padding.
#pragma once

#include <cstdint>

#include "comm/mesh.h"
#include "model/config.h"
#include "ops/linear.h"

namespace piton {

// How a model is cut and run, whatever the sizes of the mesh.
struct LayoutOptions {
  LinearStrategy linears;                  // slices, and rows split over the tensor ranks
  bool recompute = false;                  // full: each block keeps its input only
  std::int64_t vocabulary_multiple = 128;  // padded to a multiple of this x tensor size,
  std::int64_t vocabulary_rows = 0;        // or to exactly this, if above 0
};

struct ModelLayout {
  Mesh* mesh = nullptr;
  LayoutOptions options;

  std::int64_t padded_vocabulary(std::int64_t vocabulary) const;
  // Throws Error(kUsage) naming the flag if heads, groups, ffn or layers do not divide.
  void check(const ModelConfig& config, int chunks) const;
};

}  // namespace piton
