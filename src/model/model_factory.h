// The chunks of any model: of a decoder, of an encoder, or of both.
#pragma once

#include "model/config.h"
#include "model/layout.h"
#include "nn/adapters.h"
#include "nn/chunk.h"

namespace piton {

// decoder_factory() or encoder_factory(). Throws Error(kUsage) for adapters of an encoder.
ChunkFactory model_factory(const ModelConfig& config, const ModelLayout& layout,
                           const Adapters& adapters = {});

}  // namespace piton
