#include <cmath>

#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// Command R (Cohere 2024): LLaMA whose branches read the same layer norm, without biases, rotary
// positions of interleaved channels, and a factor of the logits. Command R7B and A (Cohere 2025,
// arXiv:2504.00698; "cohere2") have a window in three of four layers, and no positions in the
// fourth.
namespace piton {
namespace {

// The number whose inverse is `number`; of two neighbors the one that is exactly so.
double inverse(double number) {
  const double near = 1 / number;
  for (const double one : {std::nextafter(near, 0.0), std::nextafter(near, 2 * near)})
    if (1 / near != number && 1 / one == number) return one;
  return near;
}

ModelConfig cohere_like_model(const HfConfig& config, double base) {
  ModelConfig facts = llama_facts();
  facts.norm = NormKind::kLayer;
  facts.norm_biases = false;
  facts.parallel_residual = facts.single_norm = true;
  facts.rotary_pairs = true;
  ModelConfig model = llama_like_model(config, facts, {.rotary_base = base});
  refuse_partial_rotary(config, model);
  model.norm_eps = config.number("layer_norm_eps", 1e-5);
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  model.tied = config.flag("tie_word_embeddings", true);
  const double scale = config.number("logit_scale", 0.0625);
  if (!(scale > 0)) config.refuse("logit_scale", "a number above 0");
  model.logit_divisor = inverse(scale);
  return model;
}

ModelConfig cohere_model(const HfConfig& config) {
  if (config.flag("use_qk_norm", false)) {
    config.refuse("use_qk_norm",
                  "false: Piton has no layer norms of heads, which Command R+ has, yet");
  }
  return cohere_like_model(config, 500000);
}

ModelConfig cohere2_model(const HfConfig& config) {
  ModelConfig model = cohere_like_model(config, 10000);
  if (model.hidden % model.heads != 0)
    config.refuse("num_attention_heads", "a divisor of hidden_size");
  model.head_size = model.hidden / model.heads;  // whatever the key says
  if (config.lists("sliding_window") && !config.has("sliding_window"))
    config.refuse("sliding_window", "a number of keys");
  set_layers_without_positions(config, model);
  return model;
}

nlohmann::ordered_json cohere_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = whole_rotary_keys(model);
  keys.erase("rms_norm_eps");
  keys["layer_norm_eps"] = model.norm_eps;
  keys["attention_bias"] = model.qkv_biases;
  keys["logit_scale"] = inverse(model.logit_divisor);
  return keys;
}

nlohmann::ordered_json cohere2_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = cohere_keys(model);
  keys["sliding_window"] = window_key(model);
  keys["layer_types"] = window_layer_types(model);
  return keys;
}

}  // namespace

HfFamily hf_cohere() {
  return {.model_types = {"cohere"},
          .architectures = {"CohereForCausalLM"},
          .model = cohere_model,
          .places = llama_like_places,
          .keys = cohere_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_cohere2() {
  return {.model_types = {"cohere2"},
          .architectures = {"Cohere2ForCausalLM"},
          .model = cohere2_model,
          .places = llama_like_places,
          .keys = cohere2_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
