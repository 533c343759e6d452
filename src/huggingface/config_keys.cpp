#include "huggingface/config_keys.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "huggingface/families/families.h"
#include "huggingface/family.h"
#include "huggingface/label_head.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

// The parts of `model` that affect weights and their meaning.
ModelConfig without_training(ModelConfig model) {
  model.family.clear();
  model.hidden_dropout = model.attention_dropout = 0;
  model.dtype = DType::kF32;
  model.attention_block = 0;
  model.init_deviation = 0;
  model.embedding_deviation.reset();
  model.xavier_weights = false;
  model.mtp_loss_factor = 0;
  if (model.experts) {
    model.experts->balance_factor = model.experts->bias_rate = model.experts->z_factor = 0;
    model.experts->balances_samples = model.experts->keeps_first = false;
    model.experts->capacity_factor = 0;
    model.experts->random_router = false;
  }
  return model;
}

std::string difference_of_experts(std::optional<ExpertFacts> model,
                                  const std::optional<ExpertFacts>& held) {
  if (model && held && model->score != held->score) {
    return model->score == ScoreKind::kSigmoid ? "experts that sigmoids choose"
                                               : "experts that a softmax chooses";
  }
  if (model && held && model->weighs_inputs != held->weighs_inputs)
    return "weights of the inputs of experts (--moe-apply-probs-on-input)";
  if (!model || !held || model->normalized == held->normalized) return "its experts";
  model->normalized = held->normalized;
  if (model != held) return "its experts";
  return held->normalized ? "weights of experts that do not add up to 1"
                          : "weights of experts that add up to 1";
}

// The first property in which `held` differs from `model`.
std::string difference(const ModelConfig& model, const ModelConfig& held) {
  const auto differs = [&](auto... fields) { return ((model.*fields != held.*fields) || ...); };
  using C = ModelConfig;
  if (model.encoder_decoder.has_value() != held.encoder_decoder.has_value())
    return model.encoder_decoder ? "an encoder and a decoder" : "one stack of layers";
  if (differs(&C::encoder_decoder)) return "the sizes of its encoder, its buckets or its head";
  if (differs(&C::labels, &C::regression, &C::several_labels)) {
    return model.gives_rewards()  ? "a head of rewards"
           : model.regression     ? "a head of a number"
           : model.several_labels ? "a head for several labels of a text"
           : model.labels > 0     ? "a head for labels"
                                  : "a head over the vocabulary";
  }
  if (differs(&C::label_names)) return "the names of its labels";
  if (differs(&C::encoder)) return model.encoder ? "an encoder" : "a decoder";
  if (differs(&C::latent))
    return model.latent ? "multi-head latent attention" : "attention with key groups";
  if (differs(&C::delta))
    return model.delta ? "layers of the gated delta rule" : "attention in all layers";
  if (differs(&C::state_space))
    return model.state_space ? "layers of Mamba-2" : "attention in all layers";
  if (differs(&C::short_convolution))
    return model.short_convolution ? "short convolutions" : "attention in all layers";
  if (differs(&C::output_gate)) return "a gate of attention (--attention-output-gate)";
  if (differs(&C::experts)) return difference_of_experts(model.experts, held.experts);
  if (differs(&C::mtp_layers)) return "layers that predict later tokens";
  if (differs(&C::positions)) return "its kind of positions";
  if (differs(&C::norm)) return "its kind of norm";
  if (differs(&C::norm_biases, &C::norm_gains)) return "gains or biases of its norms";
  if (differs(&C::activation, &C::gated)) return "its activation";
  if (differs(&C::gate_rule)) return "the bound of its gates";
  if (differs(&C::softmax)) return "its softmax (--softmax-type)";
  if (differs(&C::biases, &C::qkv_biases, &C::output_bias)) return "its biases";
  if (differs(&C::head_bias)) return "a bias of its head";
  if (differs(&C::gains_from_one, &C::end_norms, &C::start_norms)) return "its norms";
  if (differs(&C::parallel_residual, &C::single_norm)) return "the order of its branches";
  if (differs(&C::scaled_embedding, &C::embedding_factor)) return "a scaled embedding";
  if (differs(&C::branch_factor)) return "a factor of its branches";
  if (differs(&C::logit_divisor)) return "a divisor of its logits";
  if (differs(&C::attention_soft_cap, &C::logit_soft_cap)) return "its soft caps";
  if (differs(&C::embedding_norm)) return "a norm after the embedding";
  if (differs(&C::normalized_head)) return "a normalized head";
  if (differs(&C::head_norms)) return "norms of heads";
  if (differs(&C::joint_head_norms)) return "norms of all heads together";
  if (differs(&C::norms_after_rotary)) return "norms of heads after their positions";
  if (differs(&C::rotary_pairs)) return "rotary positions of interleaved channels";
  if (differs(&C::rotary_reversed)) return "the direction of its rotary positions";
  if (differs(&C::rotary_base, &C::rotary_share, &C::rotary_scaling)) return "its rotary positions";
  if (differs(&C::local_rotary_base)) return "its rotary positions";
  if (differs(&C::no_rotary_every)) return "its layers without positions";
  if (differs(&C::window_before, &C::window_after, &C::full_attention_every) ||
      differs(&C::full_attention_first))
    return "its attention window";
  if (differs(&C::alibi)) return "biases of distances (--alibi-fusion-attn-type)";
  if (differs(&C::prefix)) return "prompts whose tokens see one another (--sparse-mode 5)";
  if (differs(&C::heads, &C::groups, &C::head_size)) return "its heads";
  if (differs(&C::query_scalar, &C::score_factor)) return "the scale of its scores";
  if (differs(&C::tied)) return "a separate head";
  return "its sizes";
}

// As Transformers calls it.
std::string_view dtype_word(DType dtype) {
  return dtype == DType::kBF16 ? "bfloat16" : dtype == DType::kF16 ? "float16" : "float32";
}

// Keys of every family, then its own.
Json config_of(const HfFamily& family, const ModelConfig& model) {
  Json config = {{"architectures", {family.architectures.front()}},
                 {"model_type", family.model_types.front()},
                 {"vocab_size", model.vocabulary},
                 {"tie_word_embeddings", model.tied},
                 {"initializer_range", model.init_deviation},
                 {"dtype", dtype_word(model.dtype)}};
  config.update(family.keys(model));
  if (config.contains("init_std")) config.erase("initializer_range");  // OPT's word for it
  if (model.labels > 0) config.update(label_keys(family.model_types.front(), model));
  return config;
}

bool is_of(const HfFamily& family, const std::string& type) {
  return std::ranges::find(family.model_types, type) != family.model_types.end();
}

// The model that `keys` describe; nullopt if they do not describe a whole one that Piton has. The
// weights decide whether its head is tied.
std::optional<ModelConfig> described_by(const Json& keys, bool tied) {
  if (keys.is_null()) return std::nullopt;
  try {
    ModelConfig model = hf_model(HfConfig(keys.dump(), "config.json"));
    model.tied = tied;
    return model;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// `origin`, which says what the keys `was` say, with the keys by which `now` differs from these.
Json with_changes(Json origin, const Json& was, const Json& now) {
  for (const auto& [key, value] : was.items()) {
    if (!now.contains(key)) origin.erase(key);
  }
  for (const auto& [key, value] : now.items()) {
    if (was.contains(key) && was[key] == value) continue;
    if (key == "rope_parameters") {
      // The same in the words of Transformers 4, which would be read before it.
      for (const char* older :
           {"rope_scaling", "rope_theta", "rope_local_base_freq", "partial_rotary_factor"})
        origin.erase(older);
    }
    origin[key] = value;
  }
  return origin;
}

// For the first of `families` that holds the model.
HfDescription written_by(const std::vector<HfFamily>& families, const ModelConfig& model,
                         std::string& why) {
  for (std::size_t i = 0; i < families.size(); ++i) {
    if (families[i].keys == nullptr) continue;
    if (model.labels > 0 && label_architecture(families[i].model_types.front()).empty()) continue;
    HfDescription written{families[i], config_of(families[i], model), ""};
    try {
      const HfConfig config(written.config.dump(), "config.json");
      ModelConfig read = families[i].model(config);
      set_label_head(config, read);
      set_later_layers(config, families[i], read);
      const std::string lost = model_difference(model, read);
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

}  // namespace

std::string model_difference(const ModelConfig& model, const ModelConfig& other) {
  return without_training(model) == without_training(other) ? "" : difference(model, other);
}

HfDescription hf_config_of(const ModelConfig& model, const Json& origin) {
  const std::string type = origin.is_null() ? "" : origin.at("model_type").get<std::string>();
  // Of a model that had no folder the family alone is known, though it may have defaults for all.
  const bool has_keys = origin.size() > 1;
  const std::optional<ModelConfig> before =
      has_keys ? described_by(origin, model.tied) : std::nullopt;
  if (before && model_difference(model, *before).empty())
    return {hf_family(HfConfig(origin.dump(), "config.json")), origin, ""};

  std::vector<HfFamily> families = hf_families();
  for (const std::string& first : {model.family, type}) {  // the last comes first
    std::stable_partition(families.begin(), families.end(),
                          [&](const HfFamily& family) { return is_of(family, first); });
  }
  std::string why = "its family";
  HfDescription written = written_by(families, model, why);
  if (type.empty()) return written;
  if (!is_of(written.family, type)) {
    const bool known = is_of(families.front(), type);
    written.note = fmt::format(
        "the weights come from a folder of model_type {}, which {}: the folder is of model_type {}",
        type, known ? "cannot say " + why : "Piton does not know",
        written.config["model_type"].get<std::string>());
  } else if (before) {
    Json kept = with_changes(origin, config_of(written.family, *before), written.config);
    if (model.labels > 0) kept["architectures"] = {label_architecture(type)};
    const std::optional<ModelConfig> again = described_by(kept, model.tied);
    if (again && model_difference(model, *again).empty()) {
      written.config = kept;
    } else {
      written.note = fmt::format(
          "config.json is new, as {} has changed: other keys of the folder that the weights come "
          "from are not in it",
          model_difference(model, *before));
    }
  }
  return written;
}

}  // namespace piton
