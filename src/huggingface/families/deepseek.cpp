#include <fmt/format.h>

#include <utility>

#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// DeepSeek-V2 (arXiv:2405.04434) and V3 (arXiv:2412.19437): multi-head latent attention, and
// experts in the layers after the first ones. V2 chooses experts by a softmax, of all or of the
// best groups; V3 by sigmoids with a bias, of the best groups.
namespace piton {
namespace {

constexpr const char* kOfGroups = "group_limited_greedy";
constexpr double kLatentNormEps = 1e-6;  // of the norms of latents, whatever rms_norm_eps is

void refuse_other_deepseek(const HfConfig& config) {
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (config.flag(key, false)) config.refuse(key, "false");
  const std::string method = config.word("topk_method", "greedy");
  if (method != "greedy" && method != kOfGroups)
    config.refuse("topk_method", fmt::format("greedy or {}", kOfGroups));
  if (config.word("scoring_func", "softmax") != "softmax") config.refuse("scoring_func", "softmax");
  if (config.flag("norm_topk_prob", false))
    config.refuse("norm_topk_prob", "false (Transformers does not read it)");
  if (config.size("moe_layer_freq", 1) != 1) config.refuse("moe_layer_freq", "1");
}

void set_latent(const HfConfig& config, ModelConfig& model) {
  LatentFacts facts{.query_rank = config.lists("q_lora_rank") ? 0 : 1536};
  if (config.has("q_lora_rank")) facts.query_rank = config.size("q_lora_rank");
  facts.rank = config.size("kv_lora_rank", facts.rank);
  facts.own = config.size("qk_nope_head_dim", facts.own);
  facts.turned = config.size("qk_rope_head_dim", facts.turned);
  facts.value = config.size("v_head_dim", facts.value);
  model.latent = facts;
  model.head_size = facts.head_size();
  if (model.groups != model.heads)
    config.refuse("num_key_value_heads",
                  fmt::format("num_attention_heads, which is {}", model.heads));
  if (model.norm_eps != kLatentNormEps)
    config.refuse("rms_norm_eps", "1e-06, as norms of latents have it");
  const RotaryScaling& scaling = model.rotary_scaling;
  if (scaling.kind != RotaryScaling::Kind::kYarn && scaling.denominator != 0)
    rotary_keys(config).refuse("mscale_all_dim", "0, but of yarn");
}

void set_deepseek_experts(const HfConfig& config, ModelConfig& model) {
  const auto first = static_cast<std::int64_t>(config.number("first_k_dense_replace", 0.0));
  if (first < 0 || static_cast<double>(first) != config.number("first_k_dense_replace", 0.0))
    config.refuse("first_k_dense_replace", "a number of layers");
  if (first >= model.layers) return model.experts.reset();
  ExpertFacts facts{.experts = config.size("n_routed_experts", 64),
                    .choices = config.size("num_experts_per_tok"),
                    .normalized = false,
                    .weight_factor = config.number("routed_scaling_factor", 1.0)};
  if (config.word("topk_method", "greedy") == kOfGroups) {
    facts.groups = {.count = config.size("n_group"), .chosen = config.size("topk_group")};
    if (!facts.groups.divide()) facts.groups = {};
  }
  const std::int64_t width = config.size("moe_intermediate_size", 1407);
  const std::int64_t shared = config.size("n_shared_experts", 2);
  for (std::int64_t layer = 0; layer < first; ++layer) facts.dense_layers.push_back(layer);
  if (first == 0) model.ffn_hidden = width;
  facts.ffn_hidden = width == model.ffn_hidden ? 0 : width;
  facts.shared_ffn_hidden = shared * width;
  model.experts = facts;
}

ModelConfig deepseek_v2_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, deepseek_v2_facts(), {});
  refuse_partial_rotary(config, model);
  refuse_other_deepseek(config);
  set_latent(config, model);
  set_deepseek_experts(config, model);
  return model;
}

ModelConfig deepseek_v3_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, deepseek_v3_facts(), {.groups = 128});
  refuse_partial_rotary(config, model);
  if (config.flag("attention_bias", false)) config.refuse("attention_bias", "false");
  // Keys of the authors, which Transformers does not read.
  if (config.word("scoring_func", "sigmoid") != "sigmoid") config.refuse("scoring_func", "sigmoid");
  if (config.word("topk_method", "noaux_tc") != "noaux_tc")
    config.refuse("topk_method", "noaux_tc");
  set_latent(config, model);
  model.rotary_pairs = config.flag("rope_interleave", true);
  ExpertFacts otherwise = *preset("deepseek-v3").experts;
  otherwise.bias_rate = 0;  // of training; other programs keep the bias as it is
  set_routed_experts(config, model, otherwise);
  return model;
}

// Of both. Without latent attention, those of another model, which are refused when they are read.
nlohmann::ordered_json deepseek_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys.erase("head_dim");
  keys["rope_parameters"].erase("partial_rotary_factor");  // Transformers rotates all channels
  if (!model.latent) return keys;
  const LatentFacts& facts = *model.latent;
  keys["q_lora_rank"] = nullptr;
  if (facts.query_rank != 0) keys["q_lora_rank"] = facts.query_rank;
  keys["kv_lora_rank"] = facts.rank;
  keys["qk_nope_head_dim"] = facts.own;
  keys["qk_rope_head_dim"] = facts.turned;
  keys["v_head_dim"] = facts.value;
  keys["attention_bias"] = false;
  add_routed_expert_keys(model, keys);
  return keys;
}

nlohmann::ordered_json deepseek_v2_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = deepseek_keys(model);
  keys["mlp_bias"] = false;
  if (!model.experts) {
    keys["first_k_dense_replace"] = model.layers;
    return keys;
  }
  keys["topk_method"] = model.experts->groups.divide() ? kOfGroups : "greedy";
  keys["norm_topk_prob"] = false;
  return keys;
}

nlohmann::ordered_json deepseek_v3_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = deepseek_keys(model);
  keys["rope_interleave"] = model.rotary_pairs;
  keys[kLaterLayers] = model.mtp_layers;
  return keys;
}

std::vector<HfPlace> deepseek_places(const ModelConfig& model) {
  const bool ranked = model.latent && model.latent->query_rank != 0;
  std::vector<HfPart> parts = shared_experts_parts();
  parts.insert(parts.end(),
               {{"attention.query_down.", "self_attn.q_a_proj."},
                {"attention.query_down_norm.", "self_attn.q_a_layernorm."},
                {"attention.query.", ranked ? "self_attn.q_b_proj." : "self_attn.q_proj."},
                {"attention.latent.", "self_attn.kv_a_proj_with_mqa."},
                {"attention.latent_norm.", "self_attn.kv_a_layernorm."},
                {"attention.key_value.", "self_attn.kv_b_proj."}});
  return named_places(model, llama_names(std::move(parts)));
}

}  // namespace

HfFamily hf_deepseek_v2() {
  return {.model_types = {"deepseek_v2"},
          .architectures = {"DeepseekV2ForCausalLM"},
          .model = deepseek_v2_model,
          .places = deepseek_places,
          .keys = deepseek_v2_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_deepseek_v3() {
  return {.model_types = {"deepseek_v3"},
          .architectures = {"DeepseekV3ForCausalLM"},
          .model = deepseek_v3_model,
          .places = deepseek_places,
          .keys = deepseek_v3_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"},
          .later_layers = kLaterLayers};
}

}  // namespace piton
