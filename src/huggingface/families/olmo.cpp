#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// OLMo 2 (Walsh et al. 2024, arXiv:2501.00656): LLaMA with norms at the ends of branches in place
// of those at their beginnings, and with a norm of all heads of query, and one of all of key. OLMo
// 3 (Allen Institute for AI 2025) also has a window in three of four layers, which turn by the
// angles without scaling. OLMoE (Muennighoff et al. 2024, arXiv:2409.02060): norms as in LLaMA,
// those of query and key as in OLMo 2, and experts whose weights are their shares among all.
namespace piton {
namespace {

ModelConfig olmo2_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, olmo2_facts(), {.norm_eps = 1e-5});
  refuse_partial_rotary(config, model);
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  return model;
}

nlohmann::ordered_json olmo2_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = whole_rotary_keys(model);
  keys["attention_bias"] = model.output_bias;
  return keys;
}

ModelConfig olmo3_model(const HfConfig& config) {
  constexpr double kBase = 500000;
  ModelConfig model = olmo2_model(config);
  set_window_layers(config, model, {.window = 4096, .full_every = 4});
  // Transformers 5 has the angles of each kind of layer; in older files the scaling is that of
  // layers without a window.
  const HfConfig both = config.object("rope_parameters");
  const HfConfig older = config.object("rope_scaling");
  const bool divided = both.has("full_attention") || both.has("sliding_attention");
  const HfConfig full = !older.empty() ? older : divided ? both.object("full_attention") : both;
  set_rotary(config, full, kBase, model);
  if (model.rotary_share != 1) full.refuse("partial_rotary_factor", "1");
  const HfConfig local = both.object("sliding_attention");
  if (local.word("rope_type", "default") != "default") local.refuse("rope_type", "default");
  const double base = local.number("rope_theta", config.number("rope_theta", kBase));
  if (model.window_before &&
      (base != model.rotary_base || model.rotary_scaling.kind != RotaryScaling::Kind::kNone))
    model.local_rotary_base = base;
  return model;
}

nlohmann::ordered_json olmo3_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = olmo2_keys(model);
  keys["sliding_window"] = window_key(model);
  keys["layer_types"] = window_layer_types(model);
  keys["rope_parameters"] = {
      {"full_attention", keys["rope_parameters"]},
      {"sliding_attention",
       {{"rope_type", "default"},
        {"rope_theta", model.local_rotary_base.value_or(model.rotary_base)}}}};
  return keys;
}

ModelConfig olmoe_model(const HfConfig& config) {
  ModelConfig facts = llama_facts();
  facts.head_norms = facts.joint_head_norms = true;
  ModelConfig model = llama_like_model(config, facts, {.norm_eps = 1e-5});
  refuse_partial_rotary(config, model);
  if (model.head_size * model.heads != model.hidden)
    config.refuse("head_dim", "hidden_size / num_attention_heads");
  if (config.has("clip_qkv")) config.refuse("clip_qkv", "null: Piton does not clip");
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  model.experts = hf_experts(config, {.experts = 64, .choices = 8});
  model.experts->normalized = config.flag("norm_topk_prob", false);
  return model;
}

nlohmann::ordered_json olmoe_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = olmo2_keys(model);
  if (!model.experts) return keys;
  keys["num_experts"] = model.experts->experts;
  keys["num_experts_per_tok"] = model.experts->choices;
  keys["norm_topk_prob"] = model.experts->normalized;
  return keys;
}

std::vector<HfPlace> olmo_places(const ModelConfig& model) {
  return named_places(model, llama_names({{"attention.end_norm.", "post_attention_layernorm."},
                                          {"mlp.end_norm.", "post_feedforward_layernorm."}}));
}

HfFamily olmo_family(std::string type, std::string architecture,
                     ModelConfig (*model)(const HfConfig& config),
                     nlohmann::ordered_json (*keys)(const ModelConfig& model)) {
  return {.model_types = {std::move(type)},
          .architectures = {std::move(architecture)},
          .model = model,
          .places = olmo_places,
          .keys = keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace

HfFamily hf_olmo2() { return olmo_family("olmo2", "Olmo2ForCausalLM", olmo2_model, olmo2_keys); }
HfFamily hf_olmoe() {
  HfFamily family = olmo_family("olmoe", "OlmoeForCausalLM", olmoe_model, olmoe_keys);
  family.places = llama_like_places;
  return family;
}
HfFamily hf_olmo3() { return olmo_family("olmo3", "Olmo3ForCausalLM", olmo3_model, olmo3_keys); }

}  // namespace piton
