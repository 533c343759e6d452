#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// DeepSeek-V2 (arXiv:2405.04434) and V3 (arXiv:2412.19437): multi-head latent attention, and
// experts in the layers after the first ones. V2 chooses experts by a softmax, of all or of the
// best groups; V3 by sigmoids with a bias, of the best groups. GLM-4.7-Flash ("glm4_moe_lite") is
// V3 with other sizes, and Youtu-LLM (Tencent 2025) is V3 without experts.
namespace piton {
namespace {

constexpr const char* kOfGroups = "group_limited_greedy";
constexpr double kLatentNormEps = 1e-6;  // of the norms of latents, whatever rms_norm_eps is
constexpr LatentFacts kLatents{.query_rank = 1536};

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
  set_latent(config, model, kLatents);
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
  set_latent(config, model, kLatents);
  model.rotary_pairs = config.flag("rope_interleave", true);
  ExpertFacts otherwise = *preset("deepseek-v3").experts;
  otherwise.bias_rate = 0;  // of training; other programs keep the bias as it is
  set_routed_experts(config, model, otherwise);
  return model;
}

nlohmann::ordered_json deepseek_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = latent_keys(model);
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

ModelConfig glm4_moe_lite_model(const HfConfig& config) {
  ModelConfig model =
      llama_like_model(config, deepseek_v3_facts(), {.norm_eps = 1e-5, .groups = 20});
  refuse_partial_rotary(config, model);
  if (config.flag("attention_bias", false)) config.refuse("attention_bias", "false");
  set_latent(config, model, {.query_rank = 768, .own = 192, .value = 256});
  model.rotary_pairs = config.flag("rope_interleave", true);
  ExpertFacts otherwise = *preset("deepseek-v3").experts;
  otherwise.experts = 64;
  otherwise.choices = 4;
  otherwise.weight_factor = 1.8;
  otherwise.groups = {.largest = 2};
  otherwise.ffn_hidden = 1536;
  otherwise.dense_layers = {0};
  otherwise.bias_rate = 0;
  set_routed_experts(config, model, otherwise);
  // Transformers reads the types of layers alone.
  const bool named = !config.words("mlp_layer_types").empty();
  if (!named && model.experts->dense_layers != otherwise.dense_layers)
    config.refuse("first_k_dense_replace", "1, where mlp_layer_types is absent");
  set_mlp_layer_types(config, model);
  return model;
}

nlohmann::ordered_json glm4_moe_lite_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = deepseek_v3_keys(model);
  if (model.mtp_layers == 0) keys.erase(kLaterLayers);
  if (!model.experts) return keys;
  keys["mlp_layer_types"] = mlp_layer_types(model);
  keys.erase("first_k_dense_replace");
  return keys;
}

// Of matrices and of embeddings, by the width of a model.
double youtu_deviation(double hidden) { return 2 / std::sqrt(5 * hidden); }

ModelConfig youtu_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, latent_facts(), {.groups = 16});
  refuse_partial_rotary(config, model);
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (config.flag(key, false)) config.refuse(key, "false");
  set_latent(config, model, kLatents);
  model.rotary_pairs = config.flag("rope_interleave", true);
  model.tied = config.flag("tie_word_embeddings", true);
  model.init_deviation =
      config.number("initializer_range", youtu_deviation(static_cast<double>(model.hidden)));
  const double embedding = config.number("embedding_initializer_range", 2 * model.init_deviation);
  if (embedding != model.init_deviation) model.embedding_deviation = embedding;
  return model;
}

nlohmann::ordered_json youtu_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = latent_keys(model);
  keys["rope_interleave"] = model.rotary_pairs;
  keys["embedding_initializer_range"] = model.embedding_deviation.value_or(model.init_deviation);
  return keys;
}

std::vector<HfPlace> deepseek_places(const ModelConfig& model) {
  std::vector<HfPart> parts = shared_experts_parts();
  for (HfPart& part : latent_parts(model)) parts.push_back(std::move(part));
  return named_places(model, llama_names(std::move(parts)));
}

}  // namespace

ModelConfig latent_facts() {
  ModelConfig facts = llama_facts();
  facts.latent = LatentFacts{};
  facts.head_norms = facts.rotary_pairs = true;
  return facts;
}

void set_latent(const HfConfig& config, ModelConfig& model, const LatentFacts& otherwise) {
  LatentFacts facts = otherwise;
  const char* rank = "q_lora_rank";
  if (config.lists(rank)) facts.query_rank = config.has(rank) ? config.size(rank) : 0;
  facts.rank = config.size("kv_lora_rank", facts.rank);
  facts.own = config.size("qk_nope_head_dim", facts.own);
  facts.turned = config.size("qk_rope_head_dim", facts.turned);
  facts.value = config.size("v_head_dim", facts.value);
  if (model.norm_eps != kLatentNormEps) facts.norm_eps = kLatentNormEps;
  model.latent = facts;
  model.head_size = facts.head_size();
  if (model.groups != model.heads)
    config.refuse("num_key_value_heads",
                  fmt::format("num_attention_heads, which is {}", model.heads));
  const RotaryScaling& scaling = model.rotary_scaling;
  if (scaling.kind != RotaryScaling::Kind::kYarn && scaling.denominator != 0)
    rotary_keys(config).refuse("mscale_all_dim", "0, but of yarn");
}

// Without latent attention, those of another model, which are refused when they are read.
nlohmann::ordered_json latent_keys(const ModelConfig& model) {
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
  return keys;
}

std::vector<HfPart> latent_parts(const ModelConfig& model) {
  const bool ranked = model.latent && model.latent->query_rank != 0;
  return {{"attention.query_down.", "self_attn.q_a_proj."},
          {"attention.query_down_norm.", "self_attn.q_a_layernorm."},
          {"attention.query.", ranked ? "self_attn.q_b_proj." : "self_attn.q_proj."},
          {"attention.latent.", "self_attn.kv_a_proj_with_mqa."},
          {"attention.latent_norm.", "self_attn.kv_a_layernorm."},
          {"attention.key_value.", "self_attn.kv_b_proj."}};
}

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

HfFamily hf_glm4_moe_lite() {
  HfFamily family = hf_deepseek_v3();
  family.model_types = {"glm4_moe_lite"};
  family.architectures = {"Glm4MoeLiteForCausalLM"};
  family.model = glm4_moe_lite_model;
  family.keys = glm4_moe_lite_keys;
  return family;
}

HfFamily hf_youtu() {
  return {.model_types = {"youtu"},
          .architectures = {"YoutuForCausalLM"},
          .model = youtu_model,
          .places = deepseek_places,
          .keys = youtu_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
