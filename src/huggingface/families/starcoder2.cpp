
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// StarCoder2 (Lozhkov et al. 2024, arXiv:2402.19173): LLaMA's attention with layer norms, biases
// and an MLP without a gate.
namespace piton {
namespace {

ModelConfig starcoder2_model(const HfConfig& config) {
  ModelConfig facts = llama_facts();
  facts.norm = NormKind::kLayer;
  facts.gated = false;
  ModelConfig model = llama_like_model(config, facts, {.groups = 2});
  refuse_partial_rotary(config, model);
  model.norm_eps = config.number("norm_epsilon", 1e-5);
  model.activation = hf_activation(config, "hidden_act", "gelu_pytorch_tanh");
  model.biases = model.qkv_biases = model.output_bias = config.flag("use_bias", true);
  model.tied = config.flag("tie_word_embeddings", true);
  model.init_deviation = config.number("initializer_range", 0.018042);
  model.hidden_dropout = config.number("residual_dropout", 0.0);
  if (config.number("embedding_dropout", 0.0) != model.hidden_dropout)
    config.refuse("embedding_dropout", "the same as residual_dropout");
  set_window(config, model);
  return model;
}

nlohmann::ordered_json starcoder2_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  for (const char* key : {"rms_norm_eps", "head_dim"}) keys.erase(key);
  keys["norm_epsilon"] = model.norm_eps;
  keys["use_bias"] = model.biases;
  keys["residual_dropout"] = keys["embedding_dropout"] = model.hidden_dropout;
  keys["sliding_window"] = window_key(model);
  return keys;
}

std::vector<HfPlace> starcoder2_places(const ModelConfig& model) {
  return named_places(model, llama_names({{"mlp.up.", "mlp.c_fc."}, {"mlp.down.", "mlp.c_proj."}}));
}

}  // namespace

HfFamily hf_starcoder2() {
  return {.model_types = {"starcoder2"},
          .architectures = {"Starcoder2ForCausalLM"},
          .model = starcoder2_model,
          .places = starcoder2_places,
          .keys = starcoder2_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
