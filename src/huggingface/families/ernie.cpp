#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// ERNIE 4.5 (Baidu 2025) is LLaMA with rotary positions of interleaved channels. With experts
// ("ernie4_5_moe") it has, after some layers without, those of Mixtral, chosen by their shares and
// a bias, with an MLP next to them that all tokens share.
namespace piton {
namespace {

ModelConfig ernie_like_model(const HfConfig& config, const LlamaLikeDefaults& defaults) {
  ModelConfig model = llama_like_model(config, llama_facts(), defaults);
  refuse_partial_rotary(config, model);
  model.attention_dropout = 0;  // whatever the key says
  model.rotary_pairs = true;
  model.biases = model.qkv_biases = model.output_bias = config.flag("use_bias", false);
  model.tied = config.flag("tie_word_embeddings", true);
  return model;
}

ModelConfig ernie_model(const HfConfig& config) {
  return ernie_like_model(config,
                          {.norm_eps = 1e-5, .groups = 2, .head_size = 128, .rotary_base = 500000});
}

nlohmann::ordered_json ernie_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys.erase("attention_dropout");
  keys["use_bias"] = model.biases;
  return keys;
}

constexpr const char* kFirst = "moe_layer_start_index";
constexpr const char* kLast = "moe_layer_end_index";
constexpr const char* kInterval = "moe_layer_interval";

// The layers without experts.
std::vector<std::int64_t> dense_layers_of(const HfConfig& config, std::int64_t layers) {
  const auto first = static_cast<std::int64_t>(config.number(kFirst, 1.0));
  const auto last = static_cast<std::int64_t>(config.number(kLast, -1.0));
  const std::int64_t interval = config.size(kInterval, 1);
  std::vector<std::int64_t> dense;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const bool inside = layer >= first && layer <= (last == -1 ? layers - 1 : last);
    if (!inside || (layer + 1) % interval != 0) dense.push_back(layer);
  }
  if (std::ssize(dense) == layers) config.refuse(kFirst, "a layer of the model");
  return dense;
}

ModelConfig ernie_moe_model(const HfConfig& config) {
  ModelConfig model =
      ernie_like_model(config, {.norm_eps = 1e-5, .groups = 4, .rotary_base = 500000});
  if (model.biases) config.refuse("use_bias", "false: biases of these experts are not read yet");
  // Below the sum of the largest of these shares, so that it changes nothing.
  if (config.number("moe_norm_min", 1e-12) > 1e-6) config.refuse("moe_norm_min", "at most 1e-6");
  ExpertFacts facts{.experts = config.size("moe_num_experts", 64),
                    .choices = config.size("moe_k", 6),
                    .choice_bias = true,
                    .dense_layers = dense_layers_of(config, model.layers)};
  const std::int64_t width = config.size("moe_intermediate_size", 1536);
  if (facts.dense_layers.empty()) model.ffn_hidden = width;
  facts.ffn_hidden = width == model.ffn_hidden ? 0 : width;
  const double shared = config.number("moe_num_shared_experts", 2.0);
  if (shared != 0) facts.shared_ffn_hidden = config.size("moe_num_shared_experts", 2) * width;
  model.experts = facts;
  return model;
}

// Layers with experts are some of the last ones, every N-th, so that their first is N - 1 or more.
void add_expert_layers(const ModelConfig& model, nlohmann::ordered_json& keys) {
  std::vector<std::int64_t> with;
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    if (model.has_experts(layer)) with.push_back(layer);
  keys[kFirst] = with.front();
  keys[kLast] = with.back();
  keys[kInterval] = with.size() > 1 ? with[1] - with[0] : 1;
}

nlohmann::ordered_json ernie_moe_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = ernie_keys(model);
  if (model.head_size * model.heads == model.hidden) keys.erase("head_dim");
  if (!model.experts) return keys;
  const ExpertFacts& facts = *model.experts;
  keys["moe_num_experts"] = facts.experts;
  keys["moe_k"] = facts.choices;
  keys["moe_intermediate_size"] = model.expert_ffn_hidden();
  keys["moe_num_shared_experts"] = facts.shared_ffn_hidden / model.expert_ffn_hidden();
  add_expert_layers(model, keys);
  return keys;
}

std::vector<HfPlace> ernie_moe_places(const ModelConfig& model) {
  std::vector<HfPart> parts = shared_experts_parts();
  parts.push_back(
      {.canonical = "mlp.router.bias", .name = "mlp.moe_statics.e_score_correction_", .stacks = 1});
  return named_places(model, llama_names(std::move(parts)));
}

}  // namespace

HfFamily hf_ernie() {
  return {.model_types = {"ernie4_5"},
          .architectures = {"Ernie4_5ForCausalLM"},
          .model = ernie_model,
          .places = llama_like_places,
          .keys = ernie_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_ernie_moe() {
  return {.model_types = {"ernie4_5_moe"},
          .architectures = {"Ernie4_5_MoeForCausalLM"},
          .model = ernie_moe_model,
          .places = ernie_moe_places,
          .keys = ernie_moe_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"},
          .ignored_beginnings = {"model.mtp_"}};
}

}  // namespace piton
