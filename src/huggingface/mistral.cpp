
#include "base/json.h"
#include "huggingface/families.h"
#include "huggingface/llama_like.h"
#include "model/families.h"

// Mistral (Jiang et al. 2023, arXiv:2310.06825): LLaMA; versions up to 0.1 have a sliding window.
namespace piton {
namespace {

ModelConfig mistral_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, llama_facts(), {.groups = 8});
  refuse_partial_rotary(config, model);
  if (!config.lists("sliding_window")) config.refuse("sliding_window", "a number of keys, or null");
  set_window(config, model);
  // Transformers looks at the window alone, authors of such a file may mean the types.
  const std::string type = one_layer_type(config);
  if (!type.empty() && (type == "sliding_attention") != model.window_before.has_value()) {
    config.refuse("layer_types", model.window_before
                                     ? "sliding_attention, as sliding_window is not null"
                                     : "full_attention, as sliding_window is null");
  }
  return model;
}

nlohmann::ordered_json mistral_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["rope_parameters"].erase("partial_rotary_factor");  // Transformers rotates all channels
  keys["sliding_window"] = window_key(model);
  return keys;
}

}  // namespace

HfFamily hf_mistral() {
  return {.model_types = {"mistral"},
          .architectures = {"MistralForCausalLM"},
          .model = mistral_model,
          .places = llama_like_places,
          .keys = mistral_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
