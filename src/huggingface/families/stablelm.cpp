
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// StableLM (Bellagente et al. 2024, arXiv:2402.17834): LLaMA with layer norms, rotary positions in
// a quarter of each head, and in some sizes biases of query, key and value. docs/add_a_model.md
// explains this file.
namespace piton {
namespace {

ModelConfig stablelm_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, llama_facts(), {.groups = 32, .rotary_share = 0.25});
  model.norm = NormKind::kLayer;
  model.norm_eps = config.number("layer_norm_eps", 1e-5);
  model.qkv_biases = config.flag("use_qkv_bias", false);
  model.parallel_residual = model.single_norm = config.flag("use_parallel_residual", false);
  if (config.flag("qk_layernorm", false)) config.refuse("qk_layernorm", "false");
  if (config.number("hidden_dropout", 0.0) != 0) config.refuse("hidden_dropout", "0.0");
  return model;
}

nlohmann::ordered_json stablelm_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys.erase("rms_norm_eps");
  keys.erase("head_dim");
  keys["layer_norm_eps"] = model.norm_eps;
  keys["use_qkv_bias"] = model.qkv_biases;
  keys["use_parallel_residual"] = model.parallel_residual;
  keys["rope_parameters"]["partial_rotary_factor"] = model.rotary_share;  // without it a quarter
  return keys;
}

}  // namespace

HfFamily hf_stablelm() {
  return {.model_types = {"stablelm"},
          .architectures = {"StableLmForCausalLM"},
          .model = stablelm_model,
          .places = llama_like_places,
          .keys = stablelm_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
