#include <cmath>

#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "huggingface/families/names.h"
#include "model/families.h"

// Hunyuan without experts (Tencent 2025): LLaMA with norms of heads after their positions, whose
// angles have a longer base by a factor alpha (NTK-aware scaling).
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

nlohmann::ordered_json hunyuan_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = llama_like_keys(model);
  keys["rope_parameters"].erase("partial_rotary_factor");  // Transformers rotates all channels
  keys["attention_bias"] = model.qkv_biases;
  return keys;
}

std::vector<HfPlace> hunyuan_places(const ModelConfig& model) {
  return named_places(model, llama_names({{"attention.query_norm.", "self_attn.query_layernorm."},
                                          {"attention.key_norm.", "self_attn.key_layernorm."}}));
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

}  // namespace piton
