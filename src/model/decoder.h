// A decoder-only transformer in chunks: written once, over shards, for every family.
#pragma once

#include "model/config.h"
#include "model/layout.h"
#include "nn/chunk.h"

namespace piton {

// Makes the chunks of a decoder: declares their parameters (without memory) and layers, and makes
// the rotary tables in the arena. The mesh of `layout` must outlive the chunks. Throws
// Error(kUsage) if the model cannot be laid out so (ModelLayout::check).
ChunkFactory decoder_factory(const ModelConfig& config, const ModelLayout& layout);

// Layers [begin, end) of the whole model.
struct LayerRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// The layers of chunk `chunk` of `chunks`: as equal as they come, the first ones larger.
LayerRange layers_of_chunk(const ModelConfig& config, int chunk, int chunks);

}  // namespace piton
