// A decoder-only transformer, divided into chunks. One implementation for all families and layouts.
#pragma once

#include "model/config.h"
#include "model/layout.h"
#include "nn/adapters.h"
#include "nn/chunk.h"

namespace piton {

// Returns a factory for the chunks of a decoder. It declares their parameters (without allocating
// them) and layers, and allocates the rotary tables in the arena. The mesh of `layout` must outlive
// the chunks. Throws Error(kUsage) if the model does not fit the layout (ModelLayout::check). With
// `adapters`, all parameters but theirs and those that they name are frozen.
ChunkFactory decoder_factory(const ModelConfig& config, const ModelLayout& layout,
                             const Adapters& adapters = {});

}  // namespace piton
