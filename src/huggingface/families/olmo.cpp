#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// OLMo 2 (Walsh et al. 2024, arXiv:2501.00656): LLaMA with norms at the ends of branches in place
// of those at their beginnings, and with a norm of all heads of query, and one of all of key. OLMo
// 3 (Allen Institute for AI 2025) also has a window in three of four layers, which turn by the
// angles without scaling. OLMo 1 (Groeneveld et al. 2024, arXiv:2402.00838) is LLaMA with layer
// norms that have neither gains nor biases. OLMoE (Muennighoff et al. 2024, arXiv:2409.02060):
// norms as in LLaMA, those of query and key as in OLMo 2, and experts whose weights are their
// shares among all.
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
  set_angles_of_both(config, {.full = kBase, .local = kBase}, model);
  return model;
}

nlohmann::ordered_json olmo3_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = olmo2_keys(model);
  keys["sliding_window"] = window_key(model);
  keys["layer_types"] = window_layer_types(model);
  keys["rope_parameters"] = angles_of_both(model);
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

ModelConfig olmo_model(const HfConfig& config) {
  ModelConfig facts = llama_facts();
  facts.norm = NormKind::kLayer;
  facts.norm_biases = facts.norm_gains = false;
  ModelConfig model = llama_like_model(config, facts);
  refuse_partial_rotary(config, model);
  model.norm_eps = 1e-5;  // whatever keys say
  if (config.has("clip_qkv")) config.refuse("clip_qkv", "null: Piton does not clip");
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  return model;
}

nlohmann::ordered_json olmo_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = olmo2_keys(model);
  keys.erase("rms_norm_eps");
  keys["clip_qkv"] = nullptr;
  return keys;
}

// nanochat (Karpathy 2025): RMS norms without gains, also of the embedding, and of heads after
// their positions, which turn in the other direction; an MLP of the square of ReLU.
ModelConfig nanochat_model(const HfConfig& config) {
  ModelConfig facts = llama_facts();
  facts.norm_gains = facts.gated = false;
  facts.embedding_norm = facts.head_norms = facts.norms_after_rotary = true;
  facts.rotary_reversed = true;
  ModelConfig model = llama_like_model(config, facts);
  refuse_partial_rotary(config, model);
  model.activation = hf_activation(config, "hidden_act", "relu2");
  const char* cap = "final_logit_softcapping";
  model.logit_soft_cap = config.lists(cap) && !config.has(cap) ? 0 : config.number(cap, 15.0);
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  return model;
}

nlohmann::ordered_json nanochat_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = olmo2_keys(model);
  keys["final_logit_softcapping"] = nullptr;
  if (model.logit_soft_cap != 0) keys["final_logit_softcapping"] = model.logit_soft_cap;
  return keys;
}

std::vector<HfPlace> nanochat_places(const ModelConfig& model) {
  return named_places(model, llama_names({{"mlp.up.", "mlp.fc1."}, {"mlp.down.", "mlp.fc2."}}));
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

HfFamily hf_olmo() {
  HfFamily family = olmo_family("olmo", "OlmoForCausalLM", olmo_model, olmo_keys);
  family.places = llama_like_places;
  return family;
}
HfFamily hf_nanochat() {
  HfFamily family = olmo_family("nanochat", "NanoChatForCausalLM", nanochat_model, nanochat_keys);
  family.places = nanochat_places;
  return family;
}

}  // namespace piton
