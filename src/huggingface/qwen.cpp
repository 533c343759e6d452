
#include "base/json.h"
#include "huggingface/families.h"
#include "huggingface/llama_like.h"
#include "model/families.h"

// Qwen 1.5, 2 and 2.5 ("qwen2"): biases of query, key and value. Qwen 3: norms of heads instead.
// Both configurations have a sliding window for layers from max_window_layers on; published models
// switch it off.
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

}  // namespace

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

}  // namespace piton
