#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// MiniCPM (Hu et al. 2024, arXiv:2404.06395) and MiniCPM4: LLaMA whose embedding, branches and
// logits have factors, by the rules of the file that its authors publish (modeling_minicpm.py).
namespace piton {
namespace {

// The published file has longrope with the angles of long texts wherever texts may be longer than
// the original length, also for short ones, and no other factor of its tables.
void set_published_angles(const HfConfig& config, ModelConfig& model) {
  using Kind = RotaryScaling::Kind;
  RotaryScaling& scaling = model.rotary_scaling;
  const HfConfig rope = rotary_keys(config);
  if (scaling.kind != Kind::kNone && scaling.kind != Kind::kLinear &&
      scaling.kind != Kind::kLongrope)
    rope.refuse(rope.has("rope_type") ? "rope_type" : "type", "default, linear or longrope");
  if (scaling.kind != Kind::kLongrope) return;
  scaling.original_positions = rope.size("original_max_position_embeddings");
  scaling.factor = std::max(1.0, static_cast<double>(model.max_positions) /
                                     static_cast<double>(scaling.original_positions));
  scaling.magnitude.reset();
  if (scaling.factor > 1) scaling.short_factors = scaling.long_factors;
}

ModelConfig minicpm_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, llama_facts());
  refuse_partial_rotary(config, model);
  set_published_angles(config, model);
  if (config.number("num_experts", 0.0) != 0)
    config.refuse("num_experts", "0: Piton has no experts of this family");
  if (config.has("sparse_config"))
    config.refuse("sparse_config", "null: Piton has no sparse attention of this family");
  model.qkv_biases = model.output_bias = config.flag("attention_bias", false);
  model.tied = config.flag("tie_word_embeddings", true);
  model.embedding_factor = config.number("scale_emb", 1.0);
  model.branch_factor =
      config.number("scale_depth", 1.0) / std::sqrt(static_cast<double>(model.layers));
  const double base = config.number("dim_model_base", 1.0);
  if (base <= 0) config.refuse("dim_model_base", "a positive number");
  model.logit_divisor = static_cast<double>(model.hidden) / base;
  return model;
}

// The shortest number from which `of` gives `value`, if one of few digits does.
template <typename Of>
double short_inverse(double inverse, double value, const Of& of) {
  const double power = std::pow(10.0, 9 - std::floor(std::log10(std::abs(inverse))));
  const double rounded = std::round(inverse * power) / power;
  return of(rounded) == value ? rounded : inverse;
}

nlohmann::ordered_json minicpm_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = whole_rotary_keys(model);
  // In the words of the published file.
  nlohmann::ordered_json rope = keys["rope_parameters"];
  keys.erase("rope_parameters");
  keys["rope_theta"] = rope["rope_theta"];
  rope.erase("rope_theta");
  rope["type"] = rope["rope_type"];
  const auto kind = model.rotary_scaling.kind;
  if (kind == RotaryScaling::Kind::kLongrope) rope.erase("factor");
  keys["rope_scaling"] = kind == RotaryScaling::Kind::kNone ? nlohmann::ordered_json() : rope;
  keys["attention_bias"] = model.output_bias;
  keys["scale_emb"] = model.embedding_factor;
  const double root = std::sqrt(static_cast<double>(model.layers));
  keys["scale_depth"] = short_inverse(model.branch_factor * root, model.branch_factor,
                                      [root](double depth) { return depth / root; });
  const auto hidden = static_cast<double>(model.hidden);
  keys["dim_model_base"] = short_inverse(hidden / model.logit_divisor, model.logit_divisor,
                                         [hidden](double base) { return hidden / base; });
  return keys;
}

}  // namespace

HfFamily hf_minicpm() {
  return {.model_types = {"minicpm"},
          .architectures = {"MiniCPMForCausalLM"},
          .model = minicpm_model,
          .places = llama_like_places,
          .keys = minicpm_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
