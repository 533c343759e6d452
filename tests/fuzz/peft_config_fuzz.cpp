// libraries: piton_adapters
// Any bytes as the adapter_config.json of an adapter: an Error that names the file, or a rank and a
// scale for every module.
#include <cmath>
#include <cstdint>
#include <string>

#include "adapters/peft_config.h"
#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const piton::PeftConfig config = piton::parse_peft_config(text, "adapter_config.json");
    for (const char* module : {"model.layers.0.self_attn.q_proj", "lm_head"}) {
      PITON_ASSERT(config.rank_of(module) > 0);
      PITON_ASSERT(std::isfinite(config.scale_of(module)) && config.scale_of(module) > 0);
    }
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData);
    PITON_ASSERT(std::string(error.what()).starts_with("adapter_config.json"));
  }
  return 0;
}
