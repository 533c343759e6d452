#include <algorithm>

#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// Qwen 1.5, 2 and 2.5 ("qwen2"): biases of query, key and value. Qwen 3: norms of heads instead.
// Both configurations have a sliding window for layers from max_window_layers on; published models
// switch it off. Qwen 3 MoE: Qwen 3 with experts, and one window for all layers. Qwen 2 MoE: Qwen 2
// with experts and, next to them, an MLP with a gate that all tokens share; without a window here.
// Mellum 2 (JetBrains 2026): Qwen 3 MoE with a window in some layers, which turn by other angles.
namespace piton {
namespace {

void set_qwen_window(const HfConfig& config, ModelConfig& model) {
  const std::string type = one_layer_type(config);
  if (!config.flag("use_sliding_window", false) || type == "full_attention") return;
  if (type.empty()) {
    const double first = config.number("max_window_layers", 28.0);
    if (first >= static_cast<double>(model.layers)) return;
    if (first > 0) {
      config.refuse("max_window_layers",
                    "0 (every layer has the window), or the number of layers (none has)");
    }
  }
  set_window(config, model, 4096);
}

// Of Qwen 3 MoE, where Transformers looks at use_sliding_window alone. Files that mean some of the
// layers are refused.
void set_moe_window(const HfConfig& config, ModelConfig& model) {
  if (!config.flag("use_sliding_window", false)) return;
  if (config.number("max_window_layers", 0.0) != 0)
    config.refuse("max_window_layers", "0 (every layer has the window)");
  if (one_layer_type(config) == "full_attention")
    config.refuse("layer_types", "sliding_attention, as use_sliding_window is true");
  set_window(config, model, 4096);
}

ModelConfig qwen2_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, qwen2_facts(), {.groups = 32});
  refuse_partial_rotary(config, model);
  set_qwen_window(config, model);
  return model;
}

ModelConfig qwen3_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, qwen3_facts(), {.groups = 32, .head_size = 128});
  refuse_partial_rotary(config, model);
  model.output_bias = model.qkv_biases = config.flag("attention_bias", false);
  set_qwen_window(config, model);
  return model;
}

ModelConfig qwen3_moe_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, qwen3_moe_facts(), {.groups = 4});
  refuse_partial_rotary(config, model);
  model.output_bias = model.qkv_biases = config.flag("attention_bias", false);
  set_qwen_experts(config, model, {.experts = 128, .choices = 8, .ffn_hidden = 768});
  set_moe_window(config, model);
  return model;
}

ModelConfig qwen2_moe_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, qwen2_moe_facts(), {.groups = 16});
  refuse_partial_rotary(config, model);
  model.qkv_biases = config.flag("qkv_bias", true);
  set_qwen_experts(config, model, {.experts = 60, .choices = 4, .ffn_hidden = 1408});
  model.experts->shared_ffn_hidden = config.size("shared_expert_intermediate_size", 5632);
  model.experts->shared_gate = true;
  if (config.flag("use_sliding_window", false))
    config.refuse("use_sliding_window", "false (no layer has a window)");
  return model;
}

// A window is in all layers or in none.
nlohmann::ordered_json qwen_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["rope_parameters"].erase("partial_rotary_factor");  // Transformers rotates all channels
  keys["use_sliding_window"] = model.window_before.has_value();
  keys["sliding_window"] = window_key(model);
  keys["max_window_layers"] = model.window_before ? 0 : model.layers;
  const std::string type = model.window_before ? "sliding_attention" : "full_attention";
  keys["layer_types"] = std::vector<std::string>(static_cast<std::size_t>(model.layers), type);
  return keys;
}

nlohmann::ordered_json qwen2_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = qwen_keys(model);
  if (model.head_size * model.heads == model.hidden) keys.erase("head_dim");
  return keys;
}

nlohmann::ordered_json qwen3_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = qwen_keys(model);
  keys["attention_bias"] = model.output_bias;
  return keys;
}

ModelConfig mellum_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, qwen3_moe_facts(), {.groups = 4, .head_size = 128});
  model.output_bias = model.qkv_biases = config.flag("attention_bias", false);
  set_qwen_experts(config, model, {.experts = 64, .choices = 8, .ffn_hidden = 896});
  model.experts->normalized = config.flag("norm_topk_prob", true);
  set_mlp_layer_types(config, model);
  if (!config.words("layer_types").empty()) set_window_layers(config, model, {.window = 1024});
  drop_window_of_no_layer(model);
  set_angles_of_both(config, {.full = 500000, .local = 10000}, model);
  return model;
}

nlohmann::ordered_json mellum_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["attention_bias"] = model.output_bias;
  keys["sliding_window"] = window_key(model);
  keys["layer_types"] = window_layer_types(model);
  keys["rope_parameters"] = angles_of_both(model);
  if (!model.experts) return keys;
  keys["mlp_layer_types"] = mlp_layer_types(model);
  keys["moe_intermediate_size"] = model.expert_ffn_hidden();
  keys["num_local_experts"] = model.experts->experts;
  keys["num_experts_per_tok"] = model.experts->choices;
  keys["norm_topk_prob"] = model.experts->normalized;
  return keys;
}

void add_expert_keys(const ModelConfig& model, nlohmann::ordered_json& keys) {
  keys["rope_parameters"].erase("partial_rotary_factor");  // Transformers rotates all channels
  keys["decoder_sparse_step"] = 1;
  keys["mlp_only_layers"] = nlohmann::ordered_json::array();
  keys["moe_intermediate_size"] = model.ffn_hidden;
  if (!model.experts) return;
  keys["mlp_only_layers"] = model.experts->dense_layers;
  keys["moe_intermediate_size"] = model.expert_ffn_hidden();
  keys["num_experts_per_tok"] = model.experts->choices;
  keys["norm_topk_prob"] = model.experts->normalized;
}

nlohmann::ordered_json qwen3_moe_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["use_sliding_window"] = model.window_before.has_value();
  keys["sliding_window"] = window_key(model);
  keys["attention_bias"] = model.output_bias;
  add_expert_keys(model, keys);
  if (model.experts) keys["num_local_experts"] = model.experts->experts;
  return keys;
}

nlohmann::ordered_json qwen2_moe_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  if (model.head_size * model.heads == model.hidden) keys.erase("head_dim");
  keys["use_sliding_window"] = false;
  keys["qkv_bias"] = model.qkv_biases;
  add_expert_keys(model, keys);
  if (!model.experts) return keys;
  keys["num_experts"] = model.experts->experts;
  if (model.experts->shared_ffn_hidden != 0)
    keys["shared_expert_intermediate_size"] = model.experts->shared_ffn_hidden;
  return keys;
}

}  // namespace

void set_qwen_experts(const HfConfig& config, ModelConfig& model, const ExpertFacts& otherwise) {
  ExpertFacts facts = hf_experts(config, otherwise);
  facts.normalized = config.flag("norm_topk_prob", false);
  const std::int64_t step = config.size("decoder_sparse_step", 1);
  const std::vector<double> plain = config.numbers("mlp_only_layers");
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const bool named = std::ranges::find(plain, static_cast<double>(layer)) != plain.end();
    if (named || (layer + 1) % step != 0) facts.dense_layers.push_back(layer);
  }
  const std::int64_t width = config.size("moe_intermediate_size", otherwise.ffn_hidden);
  if (facts.dense_layers.empty()) model.ffn_hidden = width;
  facts.ffn_hidden = width == model.ffn_hidden ? 0 : width;
  model.experts = facts;
}

HfFamily hf_qwen2() {
  return {.model_types = {"qwen2"},
          .architectures = {"Qwen2ForCausalLM"},
          .model = qwen2_model,
          .places = llama_like_places,
          .keys = qwen2_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_qwen3() {
  return {.model_types = {"qwen3"},
          .architectures = {"Qwen3ForCausalLM"},
          .model = qwen3_model,
          .places = llama_like_places,
          .keys = qwen3_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_qwen2_moe() {
  return {.model_types = {"qwen2_moe"},
          .architectures = {"Qwen2MoeForCausalLM"},
          .model = qwen2_moe_model,
          .places = llama_like_places,
          .keys = qwen2_moe_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_qwen3_moe() {
  return {.model_types = {"qwen3_moe"},
          .architectures = {"Qwen3MoeForCausalLM"},
          .model = qwen3_moe_model,
          .places = llama_like_places,
          .keys = qwen3_moe_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_mellum() {
  return {.model_types = {"mellum"},
          .architectures = {"MellumForCausalLM"},
          .model = mellum_model,
          .places = llama_like_places,
          .keys = mellum_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"},
          .ignored_beginnings = {"mtp."}};
}

}  // namespace piton
