// libraries: piton_huggingface
// Any bytes as a model's config.json: an Error that names the file, or a model with valid sizes and
// a source name for each of its tensors.
#include <cstdint>

#include "base/error.h"
#include "huggingface/family.h"
#include "model/canonical_tensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const piton::HfConfig config(text, "config.json");
    piton::ModelConfig model = piton::hf_model(config);
    PITON_ASSERT(model.parameters() > 0);
    model.layers = std::min<std::int64_t>(model.layers, 3);  // a list of two billion is no use
    model.tied = false;
    const auto places = piton::hf_family(config).places(model);
    PITON_ASSERT(places.size() == piton::canonical_tensors(model).size());
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData);
    PITON_ASSERT(std::string(error.what()).starts_with("config.json"));
  }
  return 0;
}
