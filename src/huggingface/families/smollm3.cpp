#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// SmolLM3 (Bakouch et al. 2025, huggingface.co/blog/smollm3): LLaMA, where every fourth layer has
// no positions (Yang et al. 2025, arXiv:2501.18795).
namespace piton {
namespace {

// N of "no_rope_layers", whose entry is 0 for layers N, 2 N, ... and 1 for others; 0 if all are 1.
std::int64_t no_rotary_every(const HfConfig& config, std::int64_t layers) {
  constexpr const char* kLayers = "no_rope_layers";
  if (!config.has(kLayers)) {
    const std::int64_t every = config.size("no_rope_layer_interval", 4);
    return every <= layers ? every : 0;
  }
  const std::vector<double> rotated = config.numbers(kLayers);
  std::int64_t every = 0;
  for (std::int64_t layer = 0; layer < std::ssize(rotated); ++layer) {
    const double entry = rotated[static_cast<std::size_t>(layer)];
    if (every == 0 && entry == 0) every = layer + 1;
    const bool is_rotated = every == 0 || (layer + 1) % every != 0;
    if (entry != (is_rotated ? 1 : 0))
      config.refuse(kLayers, "0 for every layer whose number N divides, 1 for others");
  }
  if (std::ssize(rotated) != layers)
    config.refuse(kLayers, fmt::format("a number for each of {} layers", layers));
  return every;
}

ModelConfig smollm3_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, llama_facts(), {.groups = 4, .rotary_base = 2e6});
  refuse_partial_rotary(config, model);
  if (config.flag("use_sliding_window", false)) config.refuse("use_sliding_window", "false");
  const std::string type = one_layer_type(config);
  if (!type.empty() && type != "full_attention") config.refuse("layer_types", "full_attention");
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  model.biases = config.flag("mlp_bias", false);
  model.tied = config.flag("tie_word_embeddings", true);
  model.no_rotary_every = no_rotary_every(config, model.layers);
  return model;
}

nlohmann::ordered_json smollm3_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = whole_rotary_keys(model);
  keys["attention_bias"] = model.qkv_biases;
  keys["mlp_bias"] = model.biases;
  keys["use_sliding_window"] = false;
  keys["no_rope_layers"] = nlohmann::ordered_json::array();
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    keys["no_rope_layers"].push_back(model.rotates(layer) ? 1 : 0);
  return keys;
}

}  // namespace

HfFamily hf_smollm3() {
  return {.model_types = {"smollm3"},
          .architectures = {"SmolLM3ForCausalLM"},
          .model = smollm3_model,
          .places = llama_like_places,
          .keys = smollm3_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
