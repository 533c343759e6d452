
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// LLaMA 1 to 3 and models with the same names: Vicuna, TinyLlama, Yi, DeepSeek-LLM, Aquila.
// ERNIE 4.5 without experts (Baidu 2025) is LLaMA with rotary positions of interleaved channels.
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

ModelConfig ernie_model(const HfConfig& config) {
  ModelConfig model =
      llama_like_model(config, llama_facts(),
                       {.norm_eps = 1e-5, .groups = 2, .head_size = 128, .rotary_base = 500000});
  refuse_partial_rotary(config, model);
  model.attention_dropout = 0;  // whatever the key says
  model.rotary_pairs = true;
  model.biases = model.qkv_biases = model.output_bias = config.flag("use_bias", false);
  model.tied = config.flag("tie_word_embeddings", true);
  return model;
}

nlohmann::ordered_json ernie_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys.erase("attention_dropout");
  keys["use_bias"] = model.biases;
  return keys;
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

HfFamily hf_ernie() {
  return {.model_types = {"ernie4_5"},
          .architectures = {"Ernie4_5ForCausalLM"},
          .model = ernie_model,
          .places = llama_like_places,
          .keys = ernie_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
