
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// GLM-4 (GLM team 2024, arXiv:2406.12793): LLaMA with rotary positions of interleaved channels in
// half of each head, gate and up in one matrix, and biases of query, key and value. The models of
// 2025 ("glm4") also have norms at the ends of branches.
//
// GLM-4.5 and 4.6 (Zeng et al. 2025, arXiv:2508.06471): rotary positions in half of each head,
// biases of query, key and value, norms of heads in some sizes, and from some layer on experts that
// are chosen by sigmoids with a bias, with an MLP next to them that all tokens share. The same
// experts have dots.llm1 (rednote 2025, arXiv:2506.05767), with Qwen 3's attention, and Solar Open
// (Upstage 2026), with LLaMA's.
namespace piton {
namespace {

ModelConfig glm_model(const HfConfig& config) {
  ModelConfig model =
      llama_like_model(config, llama_facts(),
                       {.norm_eps = 1.5625e-7, .groups = 2, .head_size = 128, .rotary_share = 0.5});
  model.rotary_pairs = true;
  model.qkv_biases = config.flag("attention_bias", true);
  return model;
}

ModelConfig glm4_model(const HfConfig& config) {
  ModelConfig model = glm_model(config);
  model.end_norms = true;
  return model;
}

nlohmann::ordered_json glm_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["attention_bias"] = model.qkv_biases;
  keys["rope_parameters"]["partial_rotary_factor"] = model.rotary_share;  // without it a half
  return keys;
}

std::vector<HfPlace> glm_places(const ModelConfig& model) {
  return named_places(model, llama_names({{"mlp.gate.", "mlp.gate_up_proj."},
                                          {"mlp.up.", "mlp.gate_up_proj.", model.ffn_hidden},
                                          {"attention.end_norm.", "post_self_attn_layernorm."},
                                          {"mlp.end_norm.", "post_mlp_layernorm."}}));
}

HfFamily glm_family(std::string type, std::string architecture,
                    ModelConfig (*model)(const HfConfig& config)) {
  return {.model_types = {std::move(type)},
          .architectures = {std::move(architecture)},
          .model = model,
          .places = glm_places,
          .keys = glm_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

ModelConfig glm4_moe_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, glm4_moe_facts(),
                                       {.norm_eps = 1e-5, .groups = 8, .rotary_share = 0.5});
  model.qkv_biases = config.flag("attention_bias", false);
  model.head_norms = config.flag("use_qk_norm", false);
  ExpertFacts otherwise = *model.experts;
  otherwise.ffn_hidden = 1408;
  otherwise.dense_layers = {0};
  otherwise.groups.largest = 2;
  otherwise.bias_rate = 0;  // of training; other programs keep the bias as it is
  set_routed_experts(config, model, otherwise);
  return model;
}

// Layers from "max_window_layers" on have the window, if their types are not named.
void set_dots_window(const HfConfig& config, ModelConfig& model) {
  set_window_layers(config, model, {.window = 4096});
  const char* first = "max_window_layers";
  const double full = config.number(first, 62.0);
  if (config.words("layer_types").empty() && full > 0) {
    if (full < static_cast<double>(model.layers) && model.window_before)
      config.refuse(first, "0 (every layer has the window), or the number of layers (none has)");
    model.window_before.reset();
  }
  drop_window_of_no_layer(model);
}

ModelConfig dots1_model(const HfConfig& config) {
  ModelConfig facts = glm4_moe_facts();
  facts.head_norms = true;
  ModelConfig model = llama_like_model(config, facts, {.groups = 32});
  refuse_partial_rotary(config, model);
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  // Without a default in Transformers.
  ExpertFacts otherwise = *model.experts;
  otherwise.experts = config.size("n_routed_experts");
  otherwise.choices = config.size("num_experts_per_tok");
  config.size("n_shared_experts");
  otherwise.normalized = false;
  otherwise.ffn_hidden = 1408;
  otherwise.groups.largest = 2;
  otherwise.bias_rate = 0;  // of training; other programs keep the bias as it is
  set_routed_experts(config, model, otherwise);
  set_dots_window(config, model);
  return model;
}

nlohmann::ordered_json dots1_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["rope_parameters"].erase("partial_rotary_factor");  // Transformers rotates all channels
  keys["attention_bias"] = model.output_bias;
  add_routed_expert_keys(model, keys);
  keys["sliding_window"] = window_key(model);
  keys["layer_types"] = window_layer_types(model);
  return keys;
}

ModelConfig solar_open_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, glm4_moe_facts(),
                                       {.norm_eps = 1e-5,
                                        .groups = 8,
                                        .head_size = 128,
                                        .ffn_hidden = "moe_intermediate_size",
                                        .rotary_base = 1e6});
  refuse_partial_rotary(config, model);
  model.head_norms = false;
  model.qkv_biases = config.flag("attention_bias", false);
  // Keys of the authors, which Transformers does not read.
  if (config.number("first_k_dense_replace", 0.0) != 0) config.refuse("first_k_dense_replace", "0");
  if (config.flag("use_qk_norm", false)) config.refuse("use_qk_norm", "false");
  ExpertFacts otherwise = *model.experts;
  otherwise.ffn_hidden = 1280;
  otherwise.groups.largest = 2;
  otherwise.bias_rate = 0;  // of training; other programs keep the bias as it is
  set_routed_experts(config, model, otherwise);
  return model;
}

nlohmann::ordered_json solar_open_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys.erase("intermediate_size");
  keys["rope_parameters"].erase("partial_rotary_factor");  // Transformers rotates all channels
  keys["attention_bias"] = model.qkv_biases;
  add_routed_expert_keys(model, keys);
  keys.erase("first_k_dense_replace");
  return keys;
}

nlohmann::ordered_json glm4_moe_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["rope_parameters"]["partial_rotary_factor"] = model.rotary_share;  // without it a half
  keys["attention_bias"] = model.qkv_biases;
  keys["use_qk_norm"] = model.head_norms;
  add_routed_expert_keys(model, keys);
  keys[kLaterLayers] = model.mtp_layers;
  return keys;
}

std::vector<HfPlace> glm4_moe_places(const ModelConfig& model) {
  return named_places(model, llama_names(shared_experts_parts()));
}

}  // namespace

HfFamily hf_glm() { return glm_family("glm", "GlmForCausalLM", glm_model); }
HfFamily hf_glm4() { return glm_family("glm4", "Glm4ForCausalLM", glm4_model); }

HfFamily hf_dots1() {
  return {.model_types = {"dots1"},
          .architectures = {"Dots1ForCausalLM"},
          .model = dots1_model,
          .places = glm4_moe_places,
          .keys = dots1_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_solar_open() {
  return {.model_types = {"solar_open"},
          .architectures = {"SolarOpenForCausalLM"},
          .model = solar_open_model,
          .places = glm4_moe_places,
          .keys = solar_open_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_glm4_moe() {
  return {.model_types = {"glm4_moe"},
          .architectures = {"Glm4MoeForCausalLM"},
          .model = glm4_moe_model,
          .places = glm4_moe_places,
          .keys = glm4_moe_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"},
          .later_layers = kLaterLayers};
}

}  // namespace piton
