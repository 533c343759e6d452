#include "huggingface/config_keys.h"

#include <algorithm>

#include "base/error.h"

namespace piton {
namespace {

// The parts of `model` that affect weights and their meaning.
ModelConfig without_training(ModelConfig model) {
  model.family.clear();
  model.hidden_dropout = model.attention_dropout = 0;
  model.dtype = DType::kF32;
  model.attention_block = 0;
  return model;
}

// The first property in which `held` differs from `model`.
std::string difference(const ModelConfig& model, const ModelConfig& held) {
  const auto differs = [&](auto... fields) { return ((model.*fields != held.*fields) || ...); };
  using C = ModelConfig;
  if (differs(&C::positions)) return "its kind of positions";
  if (differs(&C::norm)) return "its kind of norm";
  if (differs(&C::activation, &C::gated)) return "its activation";
  if (differs(&C::biases, &C::qkv_biases, &C::output_bias)) return "its biases";
  if (differs(&C::gains_from_one, &C::end_norms)) return "its norms";
  if (differs(&C::scaled_embedding)) return "a scaled embedding";
  if (differs(&C::attention_soft_cap, &C::logit_soft_cap)) return "its soft caps";
  if (differs(&C::embedding_norm)) return "a norm after the embedding";
  if (differs(&C::normalized_head)) return "a normalized head";
  if (differs(&C::head_norms)) return "norms of heads";
  if (differs(&C::rotary_pairs)) return "rotary positions of interleaved channels";
  if (differs(&C::rotary_base, &C::rotary_share, &C::rotary_scaling)) return "its rotary positions";
  if (differs(&C::local_rotary_base)) return "its rotary positions";
  if (differs(&C::window_before, &C::window_after, &C::full_attention_every))
    return "its attention window";
  if (differs(&C::heads, &C::groups, &C::head_size)) return "its heads";
  if (differs(&C::query_scalar)) return "the scale of its scores";
  if (differs(&C::tied)) return "a head of its own";
  return "its sizes";
}

// As Transformers calls it.
std::string_view dtype_word(DType dtype) {
  return dtype == DType::kBF16 ? "bfloat16" : dtype == DType::kF16 ? "float16" : "float32";
}

// Keys of every family, then its own.
nlohmann::ordered_json config_of(const HfFamily& family, const ModelConfig& model) {
  nlohmann::ordered_json config = {{"architectures", {family.architectures.front()}},
                                   {"model_type", family.model_types.front()},
                                   {"vocab_size", model.vocabulary},
                                   {"tie_word_embeddings", model.tied},
                                   {"initializer_range", model.init_deviation},
                                   {"dtype", dtype_word(model.dtype)}};
  config.update(family.keys(model));
  return config;
}

}  // namespace

std::string model_difference(const ModelConfig& model, const ModelConfig& other) {
  return without_training(model) == without_training(other) ? "" : difference(model, other);
}

HfDescription hf_config_of(const ModelConfig& model, const std::string& preferred) {
  std::vector<HfFamily> families = hf_families();
  for (const std::string& type : {model.family, preferred}) {  // the last comes first
    std::stable_partition(families.begin(), families.end(), [&](const HfFamily& family) {
      return std::ranges::find(family.model_types, type) != family.model_types.end();
    });
  }
  std::string why = "its family";
  for (std::size_t i = 0; i < families.size(); ++i) {
    if (families[i].keys == nullptr) continue;
    HfDescription written{families[i], config_of(families[i], model)};
    try {
      const HfConfig config(written.config.dump(), "config.json");
      const ModelConfig held = families[i].model(config);
      const std::string lost = model_difference(model, held);
      if (lost.empty()) return written;
      if (i == 0) why = lost;
    } catch (const Error& error) {
      if (i == 0) why = error.what();
    }
  }
  throw Error(Fault::kData,
              "no family of Hugging Face holds this model ({}): {} cannot be written; keep it as a "
              "checkpoint of Piton",
              model.family, why);
}

}  // namespace piton
