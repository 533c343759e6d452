#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// Hunyuan without experts (Tencent 2025): LLaMA with norms of heads after their positions, whose
// angles have a longer base by a factor alpha (NTK-aware scaling). Hunyuan-A13B
// ("hunyuan_v1_moe") has Mixtral's experts in place of the MLP, next to one that all tokens share.
namespace piton {
namespace {

ModelConfig hunyuan_model(const HfConfig& config) {
  ModelConfig facts = llama_facts();
  facts.head_norms = true;
  facts.norms_after_rotary = true;
  ModelConfig model = llama_like_model(config, facts, {.norm_eps = 1e-5});
  refuse_partial_rotary(config, model);
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  if (!config.flag("use_qk_norm", true)) config.refuse("use_qk_norm", "true");
  if (config.flag("use_cla", false)) config.refuse("use_cla", "false");
  const double alpha = rotary_keys(config).number("alpha", 0.0);
  if (model.rotary_scaling.kind == RotaryScaling::Kind::kDynamic && alpha != 0) {
    const auto width = static_cast<double>(model.head_size);
    model.rotary_scaling = {};
    model.rotary_base *= std::pow(alpha, width / (width - 2));
  }
  return model;
}

// A number, or a list of the same number for each layer.
std::int64_t size_of_layers(const HfConfig& config, const char* key, std::int64_t otherwise) {
  if (!config.is_list(key)) return config.size(key, otherwise);
  const std::vector<double> sizes = config.numbers(key);
  const bool same = std::ranges::all_of(sizes, [&](double one) { return one == sizes.front(); });
  if (sizes.empty() || !same || sizes.front() < 1 || sizes.front() != std::floor(sizes.front()))
    config.refuse(key, "the same size in every layer");
  return static_cast<std::int64_t>(sizes.front());
}

ModelConfig hunyuan_moe_model(const HfConfig& config) {
  ModelConfig model = hunyuan_model(config);
  ExpertFacts experts{.experts = size_of_layers(config, "num_experts", 1),
                      .choices = size_of_layers(config, "moe_topk", 1),
                      .shared_ffn_hidden = model.ffn_hidden};
  // Keys of the authors, which Transformers does not read.
  const std::pair<const char*, std::int64_t> fixed[] = {
      {"num_shared_expert", 1}, {"moe_intermediate_size", model.ffn_hidden}};
  for (const auto& [key, value] : fixed) {
    if (size_of_layers(config, key, value) != value)
      config.refuse(key, fmt::format("{} in every layer", value));
  }
  if (config.number("moe_layer_num_skipped", 0.0) != 0) config.refuse("moe_layer_num_skipped", "0");
  model.experts = experts;
  return model;
}

nlohmann::ordered_json hunyuan_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["rope_parameters"].erase("partial_rotary_factor");  // Transformers rotates all channels
  keys["attention_bias"] = model.qkv_biases;
  return keys;
}

nlohmann::ordered_json hunyuan_moe_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = hunyuan_keys(model);
  if (!model.experts) return keys;
  keys["num_experts"] = model.experts->experts;
  keys["moe_topk"] = model.experts->choices;
  return keys;
}

std::vector<HfPlace> hunyuan_places(const ModelConfig& model) {
  return named_places(model, llama_names({{"attention.query_norm.", "self_attn.query_layernorm."},
                                          {"attention.key_norm.", "self_attn.key_layernorm."},
                                          {"mlp.router.weight", "mlp.gate.wg."},
                                          {"mlp.shared.gate.", "mlp.shared_mlp.gate_proj."},
                                          {"mlp.shared.up.", "mlp.shared_mlp.up_proj."},
                                          {"mlp.shared.down.", "mlp.shared_mlp.down_proj."}}));
}

}  // namespace

HfFamily hf_hunyuan() {
  return {.model_types = {"hunyuan_v1_dense"},
          .architectures = {"HunYuanDenseV1ForCausalLM"},
          .model = hunyuan_model,
          .places = hunyuan_places,
          .keys = hunyuan_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

HfFamily hf_hunyuan_moe() {
  return {.model_types = {"hunyuan_v1_moe"},
          .architectures = {"HunYuanMoEV1ForCausalLM"},
          .model = hunyuan_moe_model,
          .places = hunyuan_places,
          .keys = hunyuan_moe_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
