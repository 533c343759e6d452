
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// LLaMA 1 to 3 and models with the same names: Vicuna, TinyLlama, Yi, DeepSeek-LLM, Aquila.
// Arcee (arcee.ai 2025) is LLaMA whose MLP has the square of ReLU in place of a gate.
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

}  // namespace piton
