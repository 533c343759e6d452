#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// MiniCPM (Hu et al. 2024, arXiv:2404.06395) and MiniCPM4: LLaMA whose embedding, branches and
// logits have factors, by the rules of the file that its authors publish (modeling_minicpm.py).
// MiniCPM3 has them too, and latent attention, by the rules of Transformers.
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

// Where keys are absent.
struct MinicpmFactors {
  double embedding = 1;
  double depth = 1;
  double base = 1;
};

void set_factors_of_minicpm(const HfConfig& config, ModelConfig& model,
                            const MinicpmFactors& otherwise) {
  model.embedding_factor = config.number("scale_emb", otherwise.embedding);
  model.branch_factor =
      config.number("scale_depth", otherwise.depth) / std::sqrt(static_cast<double>(model.layers));
  const double base = config.number("dim_model_base", otherwise.base);
  if (base <= 0) config.refuse("dim_model_base", "a positive number");
  model.logit_divisor = static_cast<double>(model.hidden) / base;
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
  set_factors_of_minicpm(config, model, {});
  return model;
}

ModelConfig minicpm3_model(const HfConfig& config) {
  ModelConfig model = llama_like_model(config, latent_facts(), {.norm_eps = 1e-5, .groups = 40});
  refuse_partial_rotary(config, model);
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (config.flag(key, false)) config.refuse(key, "false");
  const std::int64_t value = model.hidden / model.heads;
  set_latent(config, model,
             {.query_rank = 768, .rank = 256, .own = 64, .turned = 32, .value = value});
  model.rotary_pairs = false;
  model.tied = config.flag("tie_word_embeddings", true);
  model.init_deviation = config.number("initializer_range", 0.1);
  set_factors_of_minicpm(
      config, model,
      {.embedding = 12,
       .depth = config.lists("scale_depth") ? std::sqrt(static_cast<double>(model.layers)) : 1.4,
       .base = config.lists("dim_model_base") ? static_cast<double>(model.hidden) : 256});
  return model;
}

// The shortest number from which `of` gives `value`, if one of few digits does.
template <typename Of>
double short_inverse(double inverse, double value, const Of& of) {
  const double power = std::pow(10.0, 9 - std::floor(std::log10(std::abs(inverse))));
  const double rounded = std::round(inverse * power) / power;
  return of(rounded) == value ? rounded : inverse;
}

void add_factors_of_minicpm(const ModelConfig& model, nlohmann::ordered_json& keys) {
  keys["scale_emb"] = model.embedding_factor;
  const double root = std::sqrt(static_cast<double>(model.layers));
  keys["scale_depth"] = short_inverse(model.branch_factor * root, model.branch_factor,
                                      [root](double depth) { return depth / root; });
  const auto hidden = static_cast<double>(model.hidden);
  keys["dim_model_base"] = short_inverse(hidden / model.logit_divisor, model.logit_divisor,
                                         [hidden](double base) { return hidden / base; });
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
  add_factors_of_minicpm(model, keys);
  return keys;
}

nlohmann::ordered_json minicpm3_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = latent_keys(model);
  add_factors_of_minicpm(model, keys);
  return keys;
}

std::vector<HfPlace> minicpm3_places(const ModelConfig& model) {
  return named_places(model, llama_names(latent_parts(model)));
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

HfFamily hf_minicpm3() {
  return {.model_types = {"minicpm3"},
          .architectures = {"MiniCPM3ForCausalLM"},
          .model = minicpm3_model,
          .places = minicpm3_places,
          .keys = minicpm3_keys,
          .optional_prefix = "",
          .ignored = {".rotary_emb.inv_freq"}};
}

}  // namespace piton
