// An encoder with a head for masked words (BERT), divided into chunks (model/encoder_options.h).
#pragma once

#include "model/config.h"
#include "model/layout.h"
#include "nn/chunk.h"

namespace piton {

// As decoder_factory() of model/decoder.h, for a model with ModelConfig::encoder.
ChunkFactory encoder_factory(const ModelConfig& config, const ModelLayout& layout);

}  // namespace piton
