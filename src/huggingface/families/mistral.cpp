
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// Mistral (Jiang et al. 2023, arXiv:2310.06825): LLaMA; versions up to 0.1 have a sliding window.
// Mixtral (Jiang et al. 2024, arXiv:2401.04088): the same with experts, whose weights add up to 1.
namespace piton {
namespace {

ModelConfig mistral_like_model(const HfConfig& config, const ModelConfig& facts,
                               const LlamaLikeDefaults& defaults) {
  ModelConfig model = llama_like_model(config, facts, defaults);
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

ModelConfig mistral_model(const HfConfig& config) {
  return mistral_like_model(config, llama_facts(), {.groups = 8});
}

ModelConfig mixtral_model(const HfConfig& config) {
  ModelConfig model = mistral_like_model(config, mixtral_facts(),
                                         {.norm_eps = 1e-5, .groups = 8, .rotary_base = 1e6});
  model.experts = hf_experts(config, {.experts = 8, .choices = 2});
  if (config.number("router_jitter_noise", 0.0) != 0) config.refuse("router_jitter_noise", "0");
  return model;
}

nlohmann::ordered_json mistral_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["rope_parameters"].erase("partial_rotary_factor");  // Transformers rotates all channels
  keys["sliding_window"] = window_key(model);
  return keys;
}

nlohmann::ordered_json mixtral_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = mistral_keys(model);
  if (!model.experts) return keys;
  keys["num_local_experts"] = model.experts->experts;
  keys["num_experts_per_tok"] = model.experts->choices;
  return keys;
}

std::vector<HfPlace> mixtral_places(const ModelConfig& model) {
  return named_places(model,
                      llama_names({{"mlp.router.weight", "block_sparse_moe.gate."},
                                   {"mlp.experts.E.gate.", "block_sparse_moe.experts.E.w1."},
                                   {"mlp.experts.E.up.", "block_sparse_moe.experts.E.w3."},
                                   {"mlp.experts.E.down.", "block_sparse_moe.experts.E.w2."}}));
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

HfFamily hf_mixtral() {
  return {.model_types = {"mixtral"},
          .architectures = {"MixtralForCausalLM"},
          .model = mixtral_model,
          .places = mixtral_places,
          .keys = mixtral_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
