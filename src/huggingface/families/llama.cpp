
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// LLaMA 1 to 3 and models with the same names: Vicuna, TinyLlama, Yi, DeepSeek-LLM, Aquila.
// Arcee (arcee.ai 2025) is LLaMA whose MLP has the square of ReLU in place of a gate, and Seed-OSS
// (ByteDance 2025) LLaMA with biases of query, key and value. CWM (Meta 2025, arXiv:2510.02387) has
// a window in all layers but the first of each four. Helium (Kyutai 2025) rotates neighboring
// channels. IQuest-Coder (IQuest Lab 2026) is LLaMA by another name.
namespace piton {
namespace {

ModelConfig llama_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, llama_facts());
  refuse_partial_rotary(config, model);
  model.output_bias = model.qkv_biases = config.flag("attention_bias", false);
  model.biases = config.flag("mlp_bias", false);
  return model;
}

nlohmann::ordered_json llama_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["rope_parameters"].erase("partial_rotary_factor");  // Transformers rotates all channels
  keys["attention_bias"] = model.output_bias;
  keys["mlp_bias"] = model.biases;
  return keys;
}

ModelConfig arcee_model(const HfConfig& config) {
  ModelConfig facts = llama_facts();
  facts.gated = false;
  ModelConfig model = llama_like_model(config, facts, {.norm_eps = 1e-5});
  refuse_partial_rotary(config, model);
  model.activation = hf_activation(config, "hidden_act", "relu2");
  model.output_bias = model.qkv_biases = config.flag("attention_bias", false);
  model.biases = config.flag("mlp_bias", false);
  return model;
}

ModelConfig seed_oss_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, llama_facts(), {.groups = 8, .head_size = 128});
  refuse_partial_rotary(config, model);
  model.qkv_biases = config.flag("attention_bias", true);
  model.output_bias = config.flag("attention_out_bias", false);
  model.biases = config.flag("mlp_bias", false);
  model.attention_dropout = config.number("attention_dropout", 0.1);
  model.hidden_dropout = config.number("residual_dropout", 0.1);  // here of the embedding too
  return model;
}

nlohmann::ordered_json seed_oss_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["rope_parameters"].erase("partial_rotary_factor");  // Transformers rotates all channels
  keys["attention_bias"] = model.qkv_biases;
  keys["attention_out_bias"] = model.output_bias;
  keys["mlp_bias"] = model.biases;
  keys["residual_dropout"] = model.hidden_dropout;
  return keys;
}

constexpr std::int64_t kCwmEvery = 4;

ModelConfig cwm_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(
      config, llama_facts(), {.norm_eps = 1e-5, .groups = 8, .head_size = 128, .rotary_base = 1e6});
  refuse_partial_rotary(config, model);
  model.biases = config.flag("mlp_bias", false);
  if (rotary_keys(config).empty()) {
    model.rotary_scaling = {
        .kind = RotaryScaling::Kind::kLlama3, .factor = 16, .original_positions = 8192};
  }
  set_window_layers(config, model, {.window = 8192, .full_every = kCwmEvery, .full_first = 1});
  drop_window_of_no_layer(model);
  return model;
}

nlohmann::ordered_json cwm_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_keys(model);
  keys.erase("attention_bias");
  keys["sliding_window"] = window_key(model);
  keys["layer_types"] = window_layer_types(model);
  return keys;
}

ModelConfig helium_model(const HfConfig& config) {
  ModelConfig model =
      llama_like_model(config, llama_facts(),
                       {.norm_eps = 1e-8, .groups = 20, .head_size = 128, .rotary_base = 1e5});
  refuse_partial_rotary(config, model);
  if (model.head_size * model.heads != model.hidden)
    config.refuse("head_dim", "hidden_size / num_attention_heads");
  model.rotary_pairs = true;
  model.qkv_biases = config.flag("attention_bias", false);
  model.biases = config.flag("mlp_bias", false);
  return model;
}

nlohmann::ordered_json helium_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_keys(model);
  keys["attention_bias"] = model.qkv_biases;
  return keys;
}

ModelConfig iquestcoder_model(const HfConfig& config) {
  ModelConfig model =
      llama_like_model(config, llama_facts(), {.norm_eps = 1e-5, .groups = 8, .head_size = 128});
  refuse_partial_rotary(config, model);
  model.output_bias = model.qkv_biases = config.flag("attention_bias", false);
  model.biases = config.flag("mlp_bias", false);
  if (config.has("clip_qkv")) config.refuse("clip_qkv", "null");
  if (config.flag("use_sliding_window", false)) config.refuse("use_sliding_window", "false");
  return model;
}

}  // namespace

HfFamily hf_llama() {
  return {.model_types = {"llama", "aquila"},
          .architectures = {"LlamaForCausalLM", "LLaMAForCausalLM", "AquilaForCausalLM"},
          .model = llama_model,
          .places = llama_like_places,
          .keys = llama_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_arcee() {
  return {.model_types = {"arcee"},
          .architectures = {"ArceeForCausalLM"},
          .model = arcee_model,
          .places = llama_like_places,
          .keys = llama_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_seed_oss() {
  return {.model_types = {"seed_oss"},
          .architectures = {"SeedOssForCausalLM"},
          .model = seed_oss_model,
          .places = llama_like_places,
          .keys = seed_oss_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_cwm() {
  return {.model_types = {"cwm"},
          .architectures = {"CwmForCausalLM"},
          .model = cwm_model,
          .places = llama_like_places,
          .keys = cwm_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_helium() {
  return {.model_types = {"helium"},
          .architectures = {"HeliumForCausalLM"},
          .model = helium_model,
          .places = llama_like_places,
          .keys = helium_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_iquestcoder() {
  return {.model_types = {"iquestcoder"},
          .architectures = {"LlamaForCausalLM", "IQuestCoderForCausalLM"},
          .model = iquestcoder_model,
          .places = llama_like_places,
          .keys = llama_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
