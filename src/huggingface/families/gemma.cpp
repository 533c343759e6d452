#include <utility>

#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// Gemma, Gemma 2 (norms at the ends of branches, soft caps, a window in every second layer) and the
// text models of Gemma 3 (norms of heads instead of the caps, a window in five of six layers, with
// separate rotary angles).
namespace piton {
namespace {

// `activation`: its key.
ModelConfig gemma_like(const HfConfig& config, std::int64_t groups, const char* activation) {
  ModelConfig model = llama_like_model(config, gemma_facts(), {.groups = groups, .head_size = 256});
  refuse_partial_rotary(config, model);
  model.activation = hf_activation(config, activation, "gelu_pytorch_tanh");
  model.tied = config.flag("tie_word_embeddings", true);
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  if (config.flag("use_bidirectional_attention", false))
    config.refuse("use_bidirectional_attention", "false");
  return model;
}

ModelConfig gemma_model(const HfConfig& config) {
  const bool newer = config.has("hidden_act");  // Transformers 5 reads it alone
  ModelConfig model = gemma_like(config, 16, newer ? "hidden_act" : "hidden_activation");
  // The first files say "gelu" and mean this.
  if (model.activation == ActivationKind::kGeluErf) model.activation = ActivationKind::kGeluTanh;
  return model;
}

void set_second(const HfConfig& config, ModelConfig& model) {
  model.end_norms = true;
  model.query_scalar = config.number("query_pre_attn_scalar", 256.0);
}

// 0: no cap. `absent`: where config.json lacks the key.
double soft_cap(const HfConfig& config, const char* key, double absent) {
  return config.number(key, config.lists(key) ? 0.0 : absent);
}

ModelConfig gemma2_model(const HfConfig& config) {
  ModelConfig model = gemma_like(config, 4, "hidden_activation");
  set_second(config, model);
  model.attention_soft_cap = soft_cap(config, "attn_logit_softcapping", 50.0);
  model.logit_soft_cap = soft_cap(config, "final_logit_softcapping", 30.0);
  set_window_layers(config, model, {.window = 4096, .full_every = 2});
  return model;
}

ModelConfig gemma3_model(const HfConfig& config) {
  ModelConfig model = gemma_like(config, 4, "hidden_activation");
  set_second(config, model);
  model.logit_soft_cap = soft_cap(config, "final_logit_softcapping", 0.0);
  model.head_norms = true;
  set_window_layers(config, model,
                    {.window = 4096, .full_every = config.size("sliding_window_pattern", 6)});
  const HfConfig rope = config.object("rope_parameters");
  const HfConfig older = config.object("rope_scaling");
  // Transformers 5, else 4.
  const HfConfig full = older.empty() ? rope.object("full_attention") : older;
  set_rotary(config, full, 1e6, model);
  if (model.rotary_share != 1) full.refuse("partial_rotary_factor", "1");
  const HfConfig local = rope.object("sliding_attention");
  if (local.word("rope_type", "default") != "default") local.refuse("rope_type", "default");
  model.local_rotary_base =
      local.number("rope_theta", config.number("rope_local_base_freq", 10000.0));
  if (!model.window_before) model.local_rotary_base.reset();
  return model;
}

std::vector<HfPlace> gemma_places(const ModelConfig& model) {
  if (!model.end_norms) return llama_like_places(model);
  return named_places(model, llama_names({{"attention.end_norm.", "post_attention_layernorm."},
                                          {"mlp_norm.", "pre_feedforward_layernorm."},
                                          {"mlp.end_norm.", "post_feedforward_layernorm."}}));
}

nlohmann::ordered_json gemma_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  // "gelu_new" is the same function.
  if (model.activation == ActivationKind::kGeluTanh) keys["hidden_act"] = "gelu_pytorch_tanh";
  keys["attention_bias"] = model.output_bias;
  return keys;
}

nlohmann::ordered_json gemma2_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = gemma_keys(model);
  keys["hidden_activation"] = keys["hidden_act"];
  keys.erase("hidden_act");
  const auto cap = [](double value) {
    return value > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  // Transformers accepts only an integer.
  const double scalar = model.query_scalar.value_or(static_cast<double>(model.head_size));
  keys["query_pre_attn_scalar"] = static_cast<std::int64_t>(scalar);
  keys["attn_logit_softcapping"] = cap(model.attention_soft_cap);
  keys["final_logit_softcapping"] = cap(model.logit_soft_cap);
  keys["sliding_window"] = window_key(model);
  keys["layer_types"] = window_layer_types(model);
  return keys;
}

nlohmann::ordered_json gemma3_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = gemma2_keys(model);
  keys["rope_parameters"] = {
      {"full_attention", keys["rope_parameters"]},
      {"sliding_attention",
       {{"rope_type", "default"}, {"rope_theta", model.local_rotary_base.value_or(10000.0)}}}};
  return keys;
}

HfFamily family_of(std::string type, std::string architecture,
                   ModelConfig (*model)(const HfConfig& config),
                   nlohmann::ordered_json (*keys)(const ModelConfig& model)) {
  return {.model_types = {std::move(type)},
          .architectures = {std::move(architecture)},
          .model = model,
          .places = gemma_places,
          .keys = keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace

HfFamily hf_gemma() { return family_of("gemma", "GemmaForCausalLM", gemma_model, gemma_keys); }
HfFamily hf_gemma2() { return family_of("gemma2", "Gemma2ForCausalLM", gemma2_model, gemma2_keys); }
HfFamily hf_gemma3() {
  return family_of("gemma3_text", "Gemma3ForCausalLM", gemma3_model, gemma3_keys);
}

}  // namespace piton
