#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// EXAONE 4 (LG AI Research 2025, arXiv:2507.11407): LLaMA with norms at the ends of branches in
// place of those at their beginnings, and with norms of heads. Larger sizes have a window in three
// of four layers, and no positions in the fourth.
namespace piton {
namespace {

ModelConfig exaone4_model(const HfConfig& config) {
  ModelConfig facts = llama_facts();
  facts.start_norms = false;
  facts.end_norms = true;
  facts.head_norms = true;
  ModelConfig model = llama_like_model(config, facts, {.norm_eps = 1e-5, .groups = 32});
  refuse_partial_rotary(config, model);
  const bool no_window = config.lists("sliding_window") && !config.has("sliding_window");
  if (no_window) {
    if (one_layer_type(config) == "sliding_attention")
      config.refuse("layer_types", "full_attention, as sliding_window is null");
    return model;
  }
  set_layers_without_positions(config, model);
  return model;
}

nlohmann::ordered_json exaone4_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = whole_rotary_keys(model);
  keys["sliding_window"] = window_key(model);
  keys["layer_types"] = window_layer_types(model);
  return keys;
}

std::vector<HfPlace> exaone4_places(const ModelConfig& model) {
  return named_places(model, llama_names({{"attention.end_norm.", "post_attention_layernorm."},
                                          {"mlp.end_norm.", "post_feedforward_layernorm."}}));
}

}  // namespace

HfFamily hf_exaone4() {
  return {.model_types = {"exaone4"},
          .architectures = {"Exaone4ForCausalLM"},
          .model = exaone4_model,
          .places = exaone4_places,
          .keys = exaone4_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
