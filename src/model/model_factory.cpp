#include "model/model_factory.h"

#include "model/decoder.h"
#include "model/encoder.h"

namespace piton {

ChunkFactory model_factory(const ModelConfig& config, const ModelLayout& layout,
                           const Adapters& adapters) {
  if (!config.encoder && !config.encoder_decoder) return decoder_factory(config, layout, adapters);
  if (config.encoder) return encoder_factory(config, layout, adapters);
  if (adapters.given()) {
    throw Error(
        Fault::kUsage,
        "adapters are for decoders and encoders, and the model is an encoder with a decoder "
        "(t5)");
  }
  return encoder_decoder_factory(config, layout);
}

}  // namespace piton
