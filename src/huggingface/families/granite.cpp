#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// Granite 3 (IBM 2024, github.com/ibm-granite/granite-3.0-language-models): LLaMA whose embedding,
// scores, branches and logits have factors, those of maximal update parametrization (Yang et al.
// 2022, arXiv:2203.03466). Granite 4 without experts and without layers of Mamba
// ("granitemoehybrid") is the same, with gate and up in one matrix. Granite 3 with experts
// ("granitemoe") has those of Mixtral, one upon another.
namespace piton {
namespace {

void set_factors(const HfConfig& config, ModelConfig& model) {
  model.embedding_factor = config.number("embedding_multiplier", 1.0);
  model.branch_factor = config.number("residual_multiplier", 1.0);
  model.logit_divisor = config.number("logits_scaling", 1.0);
  const double scores = config.number("attention_multiplier", 1.0);
  model.score_factor.reset();
  if (scores != 1 / std::sqrt(static_cast<double>(model.head_size))) model.score_factor = scores;
}

void add_factors(const ModelConfig& model, nlohmann::ordered_json& keys) {
  keys["embedding_multiplier"] = model.embedding_factor;
  keys["residual_multiplier"] = model.branch_factor;
  keys["logits_scaling"] = model.logit_divisor;
  keys["attention_multiplier"] =
      model.score_factor.value_or(1 / std::sqrt(static_cast<double>(model.head_size)));
}

ModelConfig granite_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, granite_facts());
  refuse_partial_rotary(config, model);
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  model.biases = config.flag("mlp_bias", false);
  set_factors(config, model);
  return model;
}

nlohmann::ordered_json granite_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = whole_rotary_keys(model);
  keys["attention_bias"] = model.output_bias;
  keys["mlp_bias"] = model.biases;
  add_factors(model, keys);
  return keys;
}

// Refuses what Granite 4 has in other sizes: experts, and layers of Mamba (where no types are
// named, all are such layers).
void check_dense(const HfConfig& config) {
  if (config.number("num_local_experts", 8.0) != 0)
    config.refuse("num_local_experts", "0: Piton has no experts of this family yet");
  const std::vector<std::string> types = config.words("layer_types");
  const auto attends = [](const std::string& type) {
    return type == "attention" || type == "full_attention";
  };
  if (types.empty() || !std::ranges::all_of(types, attends))
    config.refuse("layer_types", "attention in every layer: Piton has no layers of Mamba yet");
}

ModelConfig granite4_model(const HfConfig& config) {
  check_dense(config);
  ModelConfig model =
      llama_like_model(config, granite_facts(), {.ffn_hidden = "shared_intermediate_size"});
  refuse_partial_rotary(config, model);
  const std::string positions = config.word("position_embedding_type", "nope");
  if (positions != "rope" && positions != "nope")
    config.refuse("position_embedding_type", "rope, nope or null");
  if (positions == "nope") {
    model.positions = PositionKind::kNone;
    model.rotary_base = ModelConfig{}.rotary_base;
    model.rotary_scaling = {};
  }
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  set_factors(config, model);
  return model;
}

nlohmann::ordered_json granite4_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = granite_keys(model);
  keys.erase("mlp_bias");
  keys["shared_intermediate_size"] = model.ffn_hidden;
  keys["num_local_experts"] = 0;
  keys["num_experts_per_tok"] = 0;
  keys["mamba_n_heads"] = 1;  // which Transformers checks, though there is no such layer
  const bool rotates = model.positions == PositionKind::kRotary;
  if (rotates) keys["position_embedding_type"] = "rope";
  if (!rotates) keys.erase("rope_parameters");
  keys["layer_types"] =
      std::vector<std::string>(static_cast<std::size_t>(model.layers), "attention");
  return keys;
}

std::vector<HfPlace> granite4_places(const ModelConfig& model) {
  return named_places(model, llama_names({{"mlp.gate.", "shared_mlp.input_linear."},
                                          {"mlp.up.", "shared_mlp.input_linear.", model.ffn_hidden},
                                          {"mlp.down.", "shared_mlp.output_linear."}}));
}

ModelConfig granite_moe_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, granite_facts());
  refuse_partial_rotary(config, model);
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  model.experts = hf_experts(config, {.experts = 8, .choices = 2});
  set_factors(config, model);
  return model;
}

nlohmann::ordered_json granite_moe_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = granite_keys(model);
  keys.erase("mlp_bias");
  if (!model.experts) return keys;
  keys["num_local_experts"] = model.experts->experts;
  keys["num_experts_per_tok"] = model.experts->choices;
  return keys;
}

std::vector<HfPlace> granite_moe_places(const ModelConfig& model) {
  const std::int64_t f = model.expert_ffn_hidden();
  const HfPart both{.name = "block_sparse_moe.input_linear.",
                    .stacks = model.experts->experts,
                    .expert_rows = 2 * f};
  HfPart gate = both, up = both;
  gate.canonical = "mlp.experts.E.gate.";
  up.canonical = "mlp.experts.E.up.";
  up.first = f;
  return named_places(model, llama_names({{"mlp.router.weight", "block_sparse_moe.router.layer."},
                                          gate,
                                          up,
                                          {.canonical = "mlp.experts.E.down.",
                                           .name = "block_sparse_moe.output_linear.",
                                           .stacks = model.experts->experts,
                                           .expert_rows = model.hidden}}));
}

}  // namespace

HfFamily hf_granite() {
  return {.model_types = {"granite"},
          .architectures = {"GraniteForCausalLM"},
          .model = granite_model,
          .places = llama_like_places,
          .keys = granite_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_granite_moe() {
  return {.model_types = {"granitemoe"},
          .architectures = {"GraniteMoeForCausalLM"},
          .model = granite_moe_model,
          .places = granite_moe_places,
          .keys = granite_moe_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_granite4() {
  return {.model_types = {"granitemoehybrid"},
          .architectures = {"GraniteMoeHybridForCausalLM"},
          .model = granite4_model,
          .places = granite4_places,
          .keys = granite4_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
