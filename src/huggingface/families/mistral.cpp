
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// Mistral (Jiang et al. 2023, arXiv:2310.06825): LLaMA; versions up to 0.1 have a sliding window.
// Ministral has it in some layers. Ministral 3 (Mistral AI 2025) has no window, angles for long
// texts and queries with a factor that grows with their positions. Folders of it, and of Mistral
// Small 3.1, have a vision part too. Mixtral (Jiang et al. 2024, arXiv:2401.04088): the same with
// experts, whose weights add up to 1. MiniMax-M2 (MiniMax 2025): sigmoids with a bias choose
// Mixtral's experts; norms of all heads of query and of all of key, and rotary positions in a part
// of each head.
namespace piton {
namespace {

void set_mistral_window(const HfConfig& config, ModelConfig& model) {
  set_window(config, model);
  // Transformers looks at the window alone, authors of such a file may mean the types.
  const std::string type = one_layer_type(config);
  if (!type.empty() && (type == "sliding_attention") != model.window_before.has_value()) {
    config.refuse("layer_types", model.window_before
                                     ? "sliding_attention, as sliding_window is not null"
                                     : "full_attention, as sliding_window is null");
  }
}

ModelConfig mistral_like_model(const HfConfig& config, const ModelConfig& facts,
                               const LlamaLikeDefaults& defaults) {
  ModelConfig model = llama_like_model(config, facts, defaults);
  refuse_partial_rotary(config, model);
  if (!config.lists("sliding_window")) config.refuse("sliding_window", "a number of keys, or null");
  set_mistral_window(config, model);
  return model;
}

ModelConfig mistral_model(const HfConfig& config) {
  return mistral_like_model(config, llama_facts(), {.groups = 8});
}

ModelConfig mixtral_model(const HfConfig& config) {
  ModelConfig model = mistral_like_model(config, mixtral_facts(),
                                         {.norm_eps = 1e-5, .groups = 8, .rotary_base = 1e6});
  model.experts = hf_experts(config, {.experts = 8, .choices = 2});
  if (config.number("router_jitter_noise", 0.0) != 0) config.refuse("router_jitter_noise", "0");
  return model;
}

ModelConfig ministral_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, llama_facts(), {.groups = 8});
  refuse_partial_rotary(config, model);
  set_window_layers(config, model, {.window = 4096});
  drop_window_of_no_layer(model);
  return model;
}

constexpr const char* kGrowth = "llama_4_scaling_beta";

ModelConfig ministral3_model(const HfConfig& config) {
  ModelConfig model =
      llama_like_model(config, llama_facts(), {.norm_eps = 1e-5, .groups = 8, .head_size = 128});
  refuse_partial_rotary(config, model);
  set_mistral_window(config, model);
  const HfConfig rope = rotary_keys(config);
  if (rope.empty()) {
    model.rotary_base = 1e6;
    model.rotary_scaling = {.kind = RotaryScaling::Kind::kYarn,
                            .factor = 16,
                            .original_positions = 16384,
                            .numerator = 1,
                            .denominator = 1,
                            .query_growth = 0.1};
    return model;
  }
  const double growth = rope.number(kGrowth);
  if (growth != 0 && model.rotary_scaling.kind != RotaryScaling::Kind::kYarn)
    rope.refuse(kGrowth, "0, but of yarn");
  model.rotary_scaling.query_growth = growth;
  return model;
}

nlohmann::ordered_json mistral_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["rope_parameters"].erase("partial_rotary_factor");  // Transformers rotates all channels
  keys["sliding_window"] = window_key(model);
  return keys;
}

nlohmann::ordered_json ministral_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = mistral_keys(model);
  keys["layer_types"] = window_layer_types(model);
  return keys;
}

nlohmann::ordered_json ministral3_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = mistral_keys(model);
  nlohmann::ordered_json& rope = keys["rope_parameters"];
  rope[kGrowth] = model.rotary_scaling.query_growth;
  // Transformers divides positions by it in any case.
  const char* original = "original_max_position_embeddings";
  if (!rope.contains(original)) rope[original] = model.max_positions;
  return keys;
}

nlohmann::ordered_json mixtral_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = mistral_keys(model);
  if (!model.experts) return keys;
  keys["num_local_experts"] = model.experts->experts;
  keys["num_experts_per_tok"] = model.experts->choices;
  return keys;
}

ModelConfig minimax_m2_model(const HfConfig& config) {
  ModelConfig facts = mixtral_facts();
  facts.head_norms = facts.joint_head_norms = true;
  ModelConfig model =
      llama_like_model(config, facts, {.groups = 8, .head_size = 128, .rotary_base = 5e6});
  const char* turned = "rotary_dim";
  const char* share = "partial_rotary_factor";
  if (config.has(turned) && !config.has(share) && !rotary_keys(config).has(share)) {
    model.rotary_share =
        static_cast<double>(config.size(turned)) / static_cast<double>(model.head_size);
  }
  model.experts = hf_experts(
      config, {.experts = 256, .choices = 8, .score = ScoreKind::kSigmoid, .choice_bias = true});
  // Keys of the authors, which Transformers does not read.
  if (config.word("scoring_func", "sigmoid") != "sigmoid") config.refuse("scoring_func", "sigmoid");
  if (config.number("shared_intermediate_size", 0.0) != 0)
    config.refuse("shared_intermediate_size", "0");
  if (config.word("qk_norm_type", "per_layer") != "per_layer")
    config.refuse("qk_norm_type", "per_layer");
  for (const char* key : {"use_qk_norm", "use_routing_bias"})
    if (!config.flag(key, true)) config.refuse(key, "true");
  if (config.number("router_jitter_noise", 0.0) != 0) config.refuse("router_jitter_noise", "0");
  return model;
}

nlohmann::ordered_json minimax_m2_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["rope_parameters"]["partial_rotary_factor"] = model.rotary_share;
  if (!model.experts) return keys;
  keys["num_local_experts"] = model.experts->experts;
  keys["num_experts_per_tok"] = model.experts->choices;
  return keys;
}

std::vector<HfPart> mixtral_experts() {
  return {{"mlp.router.weight", "block_sparse_moe.gate."},
          {"mlp.router.bias", "block_sparse_moe.e_score_correction_"},
          {"mlp.experts.E.gate.", "block_sparse_moe.experts.E.w1."},
          {"mlp.experts.E.up.", "block_sparse_moe.experts.E.w3."},
          {"mlp.experts.E.down.", "block_sparse_moe.experts.E.w2."}};
}

std::vector<HfPlace> mixtral_places(const ModelConfig& model) {
  return named_places(model, llama_names(mixtral_experts()));
}

}  // namespace

HfFamily hf_mistral() {
  return {.model_types = {"mistral"},
          .architectures = {"MistralForCausalLM", "Mistral3ForCausalLM"},
          .model = mistral_model,
          .places = llama_like_places,
          .keys = mistral_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_ministral() {
  return {.model_types = {"ministral"},
          .architectures = {"MinistralForCausalLM"},
          .model = ministral_model,
          .places = llama_like_places,
          .keys = ministral_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_ministral3() {
  return {.model_types = {"ministral3"},
          .architectures = {"Ministral3ForCausalLM", "Mistral3ForCausalLM"},
          .model = ministral3_model,
          .places = llama_like_places,
          .keys = ministral3_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_minimax_m2() {
  return {.model_types = {"minimax_m2"},
          .architectures = {"MiniMaxM2ForCausalLM"},
          .model = minimax_m2_model,
          .places = mixtral_places,
          .keys = minimax_m2_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_mixtral() {
  return {.model_types = {"mixtral"},
          .architectures = {"MixtralForCausalLM"},
          .model = mixtral_model,
          .places = mixtral_places,
          .keys = mixtral_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
