#include "huggingface/families.h"
#include "huggingface/llama_like.h"
#include "model/families.h"

// Qwen 1.5, 2 and 2.5 ("qwen2"): biases of query, key and value. Qwen 3: norms of heads instead.
// Both name a sliding window that they use in layers from max_window_layers on, and that published
// models switch off.
namespace piton {
namespace {

void set_qwen_window(const HfConfig& config, ModelConfig& model) {
  const std::string type = one_layer_type(config);
  if (!config.flag("use_sliding_window", false) || type == "full_attention") return;
  if (type.empty()) {
    const auto first = static_cast<std::int64_t>(config.number("max_window_layers", 28.0));
    if (first >= model.layers) return;
    if (first > 0) {
      config.refuse("max_window_layers",
                    "0 (every layer has the window), or the number of layers (none has)");
    }
  }
  set_window(config, model);
}

ModelConfig qwen2_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, qwen2_facts());
  set_qwen_window(config, model);
  return model;
}

ModelConfig qwen3_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, qwen3_facts());
  if (!config.has("head_dim")) model.head_size = 128;  // Transformers' default
  model.output_bias = model.qkv_biases = config.flag("attention_bias", false);
  set_qwen_window(config, model);
  return model;
}

}  // namespace

HfFamily hf_qwen2() {
  return {.model_types = {"qwen2"},
          .architectures = {"Qwen2ForCausalLM"},
          .model = qwen2_model,
          .places = llama_like_places,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_qwen3() {
  return {.model_types = {"qwen3"},
          .architectures = {"Qwen3ForCausalLM"},
          .model = qwen3_model,
          .places = llama_like_places,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
