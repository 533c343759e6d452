// A decoder-only transformer, divided into chunks. One implementation for all families and layouts.
#pragma once

#include "model/config.h"
#include "model/layout.h"
#include "nn/chunk.h"

namespace piton {

// Returns a factory for the chunks of a decoder. It declares their parameters (without allocating
// them) and layers, and allocates the rotary tables in the arena. The mesh of `layout` must outlive
// the chunks. Throws Error(kUsage) if the model does not fit the layout (ModelLayout::check).
ChunkFactory decoder_factory(const ModelConfig& config, const ModelLayout& layout);

// Layers [begin, end) of the whole model.
struct LayerRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// The layers of chunk number `chunk` of `chunks`. Chunks have equal numbers of layers; if these do
// not divide, the first chunks have one more.
LayerRange layers_of_chunk(const ModelConfig& config, int chunk, int chunks);

}  // namespace piton
