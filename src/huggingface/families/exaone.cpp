#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// EXAONE 4 (LG AI Research 2025, arXiv:2507.11407): LLaMA with norms at the ends of branches in
// place of those at their beginnings, and with norms of heads. Larger sizes have a window in three
// of four layers, and no positions in the fourth. K-EXAONE ("exaone_moe", 2026) has norms where
// LLaMA has them, and DeepSeek-V3's experts. EXAONE 3 ("exaone", arXiv:2412.04862) is LLaMA with
// other names.
namespace piton {
namespace {

ModelConfig exaone4_model(const HfConfig& config) {
  ModelConfig facts = llama_facts();
  facts.start_norms = false;
  facts.end_norms = true;
  facts.head_norms = true;
  ModelConfig model = llama_like_model(config, facts, {.norm_eps = 1e-5, .groups = 32});
  refuse_partial_rotary(config, model);
  const bool no_window = config.lists("sliding_window") && !config.has("sliding_window");
  if (no_window) {
    if (one_layer_type(config) == "sliding_attention")
      config.refuse("layer_types", "full_attention, as sliding_window is null");
    return model;
  }
  set_layers_without_positions(config, model);
  return model;
}

constexpr RoutedWords kExaoneWords{.experts = "num_experts", .shared = "num_shared_experts"};

ModelConfig exaone_moe_model(const HfConfig& config) {
  ModelConfig facts = glm4_moe_facts();
  facts.head_norms = true;
  ModelConfig model = llama_like_model(config, facts, {.norm_eps = 1e-5, .groups = 32});
  refuse_partial_rotary(config, model);
  model.qkv_biases = false;
  // A word of L and G in published files, which name the types of layers too.
  const char* pattern = "sliding_window_pattern";
  if (!config.lists("sliding_window") || config.has("sliding_window")) {
    const std::vector<std::string> types = config.words("layer_types");
    if (types.empty() && config.lists(pattern) && !config.has(pattern))
      config.refuse(pattern, "a number of layers");
    set_layers_without_positions(config, model);
  } else if (one_layer_type(config) == "sliding_attention") {
    config.refuse("layer_types", "full_attention, as sliding_window is null");
  }
  ExpertFacts otherwise = *model.experts;
  otherwise.experts = 64;
  otherwise.choices = 8;
  otherwise.weight_factor = 2.5;
  otherwise.ffn_hidden = 1024;
  otherwise.dense_layers = {0};
  otherwise.groups.largest = 2;
  otherwise.bias_rate = 0;  // of training; other programs keep the bias as it is
  set_routed_experts(config, model, otherwise, kExaoneWords);
  set_mlp_layer_types(config, model);
  return model;
}

nlohmann::ordered_json exaone_moe_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = whole_rotary_keys(model);
  keys["sliding_window"] = window_key(model);
  keys["layer_types"] = window_layer_types(model);
  add_routed_expert_keys(model, keys, kExaoneWords);
  if (model.experts) keys["mlp_layer_types"] = mlp_layer_types(model);
  return keys;
}

std::vector<HfPlace> exaone_moe_places(const ModelConfig& model) {
  std::vector<HfPart> parts = shared_experts_parts();
  parts.push_back({"mlp.router.bias", "mlp.e_score_correction_"});
  return named_places(model, llama_names(std::move(parts)));
}

// Words of LG's files, and those of Transformers 5.
const std::pair<const char*, const char*> kExaoneNames[] = {{"num_layers", "num_hidden_layers"},
                                                            {"layer_norm_epsilon", "rms_norm_eps"},
                                                            {"activation_function", "hidden_act"}};

ModelConfig exaone_model(const HfConfig& config) {
  nlohmann::ordered_json keys = read_json<nlohmann::ordered_json>(config.text());
  for (const auto& [older, newer] : kExaoneNames)
    if (config.has(older)) keys[newer] = keys[older];
  const HfConfig renamed(keys.dump(), config.where());
  ModelConfig model = llama_like_model(renamed, llama_facts(),
                                       {.norm_eps = 1e-5, .groups = 8, .rotary_base = 500000});
  refuse_partial_rotary(renamed, model);
  model.output_bias = model.qkv_biases = config.flag("attention_bias", false);
  model.biases = config.flag("mlp_bias", false);
  return model;
}

nlohmann::ordered_json exaone_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = whole_rotary_keys(model);
  keys["attention_bias"] = model.output_bias;
  keys["mlp_bias"] = model.biases;
  return keys;
}

std::vector<HfPlace> exaone_places(const ModelConfig& model) {
  HfNames names = llama_names({{"attention_norm.", "ln_1."},
                               {"attention.query.", "attn.attention.q_proj."},
                               {"attention.key.", "attn.attention.k_proj."},
                               {"attention.value.", "attn.attention.v_proj."},
                               {"attention.output.", "attn.attention.out_proj."},
                               {"mlp_norm.", "ln_2."},
                               {"mlp.gate.", "mlp.c_fc_0."},
                               {"mlp.up.", "mlp.c_fc_1."},
                               {"mlp.down.", "mlp.c_proj."}});
  names.table = "transformer.wte.";
  names.layers = "transformer.h.";
  names.final_norm = "transformer.ln_f.";
  return named_places(model, names);
}

nlohmann::ordered_json exaone4_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = whole_rotary_keys(model);
  keys["sliding_window"] = window_key(model);
  keys["layer_types"] = window_layer_types(model);
  return keys;
}

std::vector<HfPlace> exaone4_places(const ModelConfig& model) {
  return named_places(model, llama_names({{"attention.end_norm.", "post_attention_layernorm."},
                                          {"mlp.end_norm.", "post_feedforward_layernorm."}}));
}

}  // namespace

HfFamily hf_exaone4() {
  return {.model_types = {"exaone4"},
          .architectures = {"Exaone4ForCausalLM"},
          .model = exaone4_model,
          .places = exaone4_places,
          .keys = exaone4_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_exaone_moe() {
  return {.model_types = {"exaone_moe"},
          .architectures = {"ExaoneMoeForCausalLM"},
          .model = exaone_moe_model,
          .places = exaone_moe_places,
          .keys = exaone_moe_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"},
          .ignored_beginnings = {"mtp."}};
}

HfFamily hf_exaone() {
  return {.model_types = {"exaone"},
          .architectures = {"LlamaForCausalLM", "ExaoneForCausalLM"},
          .model = exaone_model,
          .places = exaone_places,
          .keys = exaone_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
