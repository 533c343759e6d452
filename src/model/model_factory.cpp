#include "model/model_factory.h"

#include "model/decoder.h"
#include "model/encoder.h"

namespace piton {

ChunkFactory model_factory(const ModelConfig& config, const ModelLayout& layout,
                           const Adapters& adapters) {
  if (!config.encoder && !config.encoder_decoder) return decoder_factory(config, layout, adapters);
  if (!adapters.shapes.empty())
    throw Error(Fault::kUsage, "adapters are for decoders, and the model has an encoder");
  if (config.encoder_decoder) return encoder_decoder_factory(config, layout);
  return encoder_factory(config, layout);
}

}  // namespace piton
