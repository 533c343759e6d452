#include "model/model_factory.h"

#include "model/decoder.h"
#include "model/encoder.h"

namespace piton {

ChunkFactory model_factory(const ModelConfig& config, const ModelLayout& layout,
                           const Adapters& adapters) {
  if (!config.encoder) return decoder_factory(config, layout, adapters);
  if (!adapters.shapes.empty())
    throw Error(Fault::kUsage, "adapters are for decoders, and the model is an encoder");
  return encoder_factory(config, layout);
}

}  // namespace piton
