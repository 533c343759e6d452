#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/options/option_range.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// LFM2 (Amini et al. 2025, arXiv:2511.23404): norms of heads, and short convolutions in place of
// attention in most layers. The form with experts has those of DeepSeek-V3 after the first layers,
// without groups and without an MLP that all tokens share. (Transformers adds 1e-6 to the sum that
// it divides their weights by, and Piton nothing; they differ by about a millionth.)
namespace piton {
namespace {

constexpr const char* kLayerTypes = "layer_types";
constexpr const char* kAttentionLayers = "full_attn_idxs";

// The width of MLPs; by default it follows from the one that config.json names, which is `given`.
std::int64_t width_of_mlps(const HfConfig& config, std::int64_t given) {
  if (!config.flag("block_auto_adjust_ff_dim", true)) return given;
  const std::int64_t width = 2 * given / 3;
  const std::string multiplier = "block_ffn_dim_multiplier";
  if (config.lists(multiplier) && !config.has(multiplier)) return width;  // null
  const double factor = config.number(multiplier, 1.0);
  const double scaled = factor * static_cast<double>(width);
  if (!(scaled >= 1 && scaled < static_cast<double>(kLargestSize)))
    config.refuse(multiplier, fmt::format("a factor of {} that gives a width", width));
  const std::int64_t multiple = config.size("block_multiple_of", 256);
  return (static_cast<std::int64_t>(scaled) + multiple - 1) / multiple * multiple;
}

std::vector<std::int64_t> attention_layers_of(const HfConfig& config, std::int64_t layers) {
  std::vector<std::int64_t> attention;
  const std::vector<std::string> types = config.words(kLayerTypes);
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] == "full_attention") attention.push_back(static_cast<std::int64_t>(layer));
    if (types[layer] != "full_attention" && types[layer] != "conv")
      config.refuse(kLayerTypes, "conv or full_attention in each layer");
  }
  if (!types.empty()) {
    if (std::ssize(types) != layers)
      config.refuse(kLayerTypes, fmt::format("{} layers (num_hidden_layers)", layers));
    return attention;
  }
  const std::vector<double> listed = config.numbers(kAttentionLayers);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const bool named = std::ranges::find(listed, static_cast<double>(layer)) != listed.end();
    if (named || !config.has(kAttentionLayers)) attention.push_back(layer);
  }
  return attention;
}

ModelConfig lfm2_like_model(const HfConfig& config, const ModelConfig& facts,
                            const char* width = "intermediate_size") {
  ModelConfig model =
      llama_like_model(config, facts, {.groups = 8, .ffn_hidden = width, .rotary_base = 1e6});
  refuse_partial_rotary(config, model);
  if (model.activation != ActivationKind::kSilu) config.refuse("hidden_act", "silu");
  model.attention_dropout = 0;  // Transformers does not read it
  model.norm_eps = config.number("norm_eps", 1e-5);
  model.tied = config.flag("tie_embedding", config.flag("tie_word_embeddings", true));
  ShortConvolutionFacts& convolutions = model.short_convolution.emplace();
  convolutions.attention_layers = attention_layers_of(config, model.layers);
  convolutions.width = config.size("conv_L_cache", 3);
  convolutions.biases = config.flag("conv_bias", false);
  if (std::ssize(convolutions.attention_layers) == model.layers) model.short_convolution.reset();
  return model;
}

ModelConfig lfm2_model(const HfConfig& config) {
  const char* older = "block_ff_dim";
  ModelConfig model =
      lfm2_like_model(config, lfm2_facts(), config.has(older) ? older : "intermediate_size");
  model.ffn_hidden = width_of_mlps(config, model.ffn_hidden);
  return model;
}

ModelConfig lfm2_moe_model(const HfConfig& config) {
  if (!config.has(kLayerTypes)) config.refuse(kLayerTypes, "conv or full_attention in each layer");
  ModelConfig model = lfm2_like_model(config, lfm2_moe_facts());
  const std::string first = "num_dense_layers";
  const double dense = config.number(first, 2.0);
  if (dense < 0 || dense != static_cast<double>(static_cast<std::int64_t>(dense)))
    config.refuse(first, "a number of layers");
  if (dense >= static_cast<double>(model.layers)) {
    model.experts.reset();
    return model;
  }
  ExpertFacts& facts = *model.experts;
  facts.experts = config.size("num_experts", 32);
  facts.choices = config.size("num_experts_per_tok", 4);
  facts.normalized = config.flag("norm_topk_prob", true);
  facts.weight_factor = config.number("routed_scaling_factor", 1.0);
  facts.choice_bias = config.flag("use_expert_bias", true);
  facts.bias_rate = 0;  // of training; other programs keep the bias as it is
  for (std::int64_t layer = 0; static_cast<double>(layer) < dense; ++layer)
    facts.dense_layers.push_back(layer);
  const std::int64_t width = config.size("moe_intermediate_size", 1792);
  if (facts.dense_layers.empty()) model.ffn_hidden = width;
  facts.ffn_hidden = width == model.ffn_hidden ? 0 : width;
  return model;
}

// Of both. A model of another kind is refused when they are read.
nlohmann::ordered_json lfm2_like_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = whole_rotary_keys(model);
  for (const char* key : {"rms_norm_eps", "hidden_act", "attention_dropout"}) keys.erase(key);
  keys["norm_eps"] = model.norm_eps;
  const ShortConvolutionFacts facts = model.short_convolution.value_or(ShortConvolutionFacts{});
  keys["conv_L_cache"] = facts.width;
  keys["conv_bias"] = facts.biases;
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    types.push_back(model.has_states(layer) ? "conv" : "full_attention");
  keys[kLayerTypes] = std::move(types);
  return keys;
}

// The width is as it is; llama.cpp asks for the other two keys of it.
nlohmann::ordered_json lfm2_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = lfm2_like_keys(model);
  keys["block_auto_adjust_ff_dim"] = false;
  keys["block_ffn_dim_multiplier"] = 1.0;
  keys["block_multiple_of"] = 256;
  return keys;
}

nlohmann::ordered_json lfm2_moe_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = lfm2_like_keys(model);
  keys["num_dense_layers"] = model.layers;
  if (!model.experts) return keys;
  const ExpertFacts& facts = *model.experts;
  keys["num_dense_layers"] = facts.dense_layers.size();
  keys["num_experts"] = facts.experts;
  keys["num_experts_per_tok"] = facts.choices;
  keys["norm_topk_prob"] = facts.normalized;
  keys["routed_scaling_factor"] = facts.weight_factor;
  keys["use_expert_bias"] = facts.choice_bias;
  keys["moe_intermediate_size"] = model.expert_ffn_hidden();
  return keys;
}

// A filter is a matrix [1, w] of each channel.
std::vector<HfPlace> lfm2_places(const ModelConfig& model) {
  const std::int64_t h = model.hidden;
  HfNames names = llama_names(
      {{"attention_norm.", "operator_norm."},
       {"mlp_norm.", "ffn_norm."},
       {"attention.output.", "self_attn.out_proj."},
       {"attention.query_norm.", "self_attn.q_layernorm."},
       {"attention.key_norm.", "self_attn.k_layernorm."},
       {"short_conv.input_gate.", "conv.in_proj."},
       {"short_conv.output_gate.", "conv.in_proj.", h},
       {"short_conv.value.", "conv.in_proj.", 2 * h},
       {.canonical = "short_conv.filter",
        .name = "conv.conv.weight",
        .stacks = h,
        .complete = true},
       {.canonical = "short_conv.filter_bias", .name = "conv.conv.bias", .complete = true},
       {"short_conv.output.", "conv.out_proj."},
       {"mlp.gate.", "feed_forward.w1."},
       {"mlp.up.", "feed_forward.w3."},
       {"mlp.down.", "feed_forward.w2."},
       {"mlp.router.weight", "feed_forward.gate."},
       {.canonical = "mlp.router.bias", .name = "feed_forward.expert_bias", .complete = true},
       {"mlp.experts.E.gate.", "feed_forward.experts.E.w1."},
       {"mlp.experts.E.up.", "feed_forward.experts.E.w3."},
       {"mlp.experts.E.down.", "feed_forward.experts.E.w2."}});
  names.final_norm = "model.embedding_norm.";
  return named_places(model, names);
}

HfFamily lfm2_family(std::string type, std::string architecture) {
  return {.model_types = {std::move(type)},
          .architectures = {std::move(architecture)},
          .model = nullptr,
          .places = lfm2_places,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq", ".pos_emb.inv_freq"}};
}

}  // namespace

HfFamily hf_lfm2() {
  HfFamily family = lfm2_family("lfm2", "Lfm2ForCausalLM");
  family.model = lfm2_model;
  family.keys = lfm2_keys;
  return family;
}

HfFamily hf_lfm2_moe() {
  HfFamily family = lfm2_family("lfm2_moe", "Lfm2MoeForCausalLM");
  family.model = lfm2_moe_model;
  family.keys = lfm2_moe_keys;
  return family;
}

}  // namespace piton
