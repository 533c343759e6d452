// Models with an encoder, divided into chunks: an encoder with a head for masked words (BERT;
// model/encoder_options.h), and an encoder with a decoder (T5; model/encoder_decoder_options.h).
#pragma once

#include "model/config.h"
#include "model/layout.h"
#include "nn/adapters.h"
#include "nn/chunk.h"

namespace piton {

// As decoder_factory() of model/decoder.h, for a model with ModelConfig::encoder.
ChunkFactory encoder_factory(const ModelConfig& config, const ModelLayout& layout,
                             const Adapters& adapters);

// The same for a model with ModelConfig::encoder_decoder. Making a chunk throws Error(kUsage) if
// the model is divided into several and LayoutOptions::split_stage is not given.
ChunkFactory encoder_decoder_factory(const ModelConfig& config, const ModelLayout& layout);

}  // namespace piton
