// How a model is divided over the mesh, and how its vocabulary is padded.
#pragma once

#include <cstdint>

#include "comm/mesh.h"
#include "model/config.h"
#include "ops/linear.h"
#include "ops/recompute.h"

namespace piton {

// Options of the layout other than the sizes of the mesh.
struct LayoutOptions {
  LinearStrategy linears;                  // slices, sequence parallelism
  RecomputeRules recompute;                // what is computed again in backward
  std::int64_t vocabulary_multiple = 128;  // pad the vocabulary to a multiple of this x t,
  std::int64_t vocabulary_rows = 0;        // or to exactly this many rows, if above 0
};

struct ModelLayout {
  Mesh* mesh = nullptr;
  LayoutOptions options;

  std::int64_t padded_vocabulary(std::int64_t vocabulary) const;
  // Throws Error(kUsage) that names the flag if heads, groups or the MLP's width are not divisible
  // by the tensor size, or if there are fewer layers than chunks.
  void check(const ModelConfig& config, int chunks) const;
};

}  // namespace piton
