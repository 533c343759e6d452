#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// Nemotron (NVIDIA 2024, arXiv:2402.16819): LLaMA's attention with rotary positions in half of each
// head, layer norms whose gains are stored as differences from 1, and an MLP without a gate whose
// activation is the square of ReLU. Jais 2 (Inception 2025) has plain layer norms, biases and
// rotary positions in all channels.
namespace piton {
namespace {

ModelConfig nemotron_model(const HfConfig& config) {
  ModelConfig facts = llama_facts();
  facts.norm = NormKind::kLayer;
  facts.gains_from_one = true;
  facts.gated = false;
  ModelConfig model = llama_like_model(config, facts, {.rotary_share = 0.5});
  model.norm_eps = config.number("norm_eps", 1e-5);
  model.activation = hf_activation(config, "hidden_act", "relu2");
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  model.biases = config.flag("mlp_bias", false);
  model.init_deviation = config.number("initializer_range", 0.0134);
  return model;
}

ModelConfig jais2_model(const HfConfig& config) {
  ModelConfig facts = llama_facts();
  facts.norm = NormKind::kLayer;
  facts.gated = false;
  ModelConfig model = llama_like_model(config, facts);
  refuse_partial_rotary(config, model);
  model.norm_eps = config.number("layer_norm_eps", 1e-5);
  model.activation = hf_activation(config, "hidden_act", "relu2");
  model.qkv_biases = model.output_bias = config.flag("attention_bias", true);
  model.biases = config.flag("mlp_bias", true);
  return model;
}

nlohmann::ordered_json jais2_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = whole_rotary_keys(model);
  keys.erase("rms_norm_eps");
  keys["layer_norm_eps"] = model.norm_eps;
  keys["attention_bias"] = model.output_bias;
  keys["mlp_bias"] = model.biases;
  return keys;
}

nlohmann::ordered_json nemotron_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys.erase("rms_norm_eps");
  keys["norm_eps"] = model.norm_eps;
  keys["attention_bias"] = model.qkv_biases;
  keys["mlp_bias"] = model.biases;
  keys["rope_parameters"]["partial_rotary_factor"] = model.rotary_share;  // without it a half
  return keys;
}

}  // namespace

HfFamily hf_nemotron() {
  return {.model_types = {"nemotron"},
          .architectures = {"NemotronForCausalLM"},
          .model = nemotron_model,
          .places = llama_like_places,
          .keys = nemotron_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_jais2() {
  return {.model_types = {"jais2"},
          .architectures = {"Jais2ForCausalLM"},
          .model = jais2_model,
          .places = llama_like_places,
          .keys = jais2_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
