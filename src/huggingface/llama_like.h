// Shared by LLaMA and the families derived from it.
#pragma once

#include <string>
#include <vector>

#include "huggingface/family.h"

namespace piton {

// Reads sizes, norm, rotary positions, activation, dropout and window from `config`; biases and
// norms of heads are those of `facts`. `longest`: the key of the longest sequence.
ModelConfig llama_like_model(const HfConfig& config, ModelConfig facts,
                             const std::string& longest = "max_position_embeddings");

// The inverse: the keys that llama_like_model() and set_rotary() read.
nlohmann::ordered_json llama_like_keys(const ModelConfig& model);
// "sliding_window": a number of keys, or null.
nlohmann::ordered_json window_key(const ModelConfig& model);
// The name of an activation in config.json.
std::string hf_activation_name(ActivationKind kind);

// Every canonical tensor of the model under LLaMA's names, which begin with "model." except for the
// head.
std::vector<HfPlace> llama_like_places(const ModelConfig& model);

// Reads "rope_parameters" (Transformers 5), else "rope_theta" and "rope_scaling" (4).
void set_rotary(const HfConfig& config, ModelConfig& model);
// Reads one object of "rope_parameters".
void set_rotary(const HfConfig& config, const HfConfig& rope, ModelConfig& model);

// Transformers turns all channels in families whose code does not ask for "partial_rotary_factor",
// whatever config.json says; other programs do not. Throws Error(kData) if it says another than 1.
void refuse_partial_rotary(const HfConfig& config, const ModelConfig& model);

// The value of "layer_types" if all layers have the same; "" if the key is absent. Throws
// Error(kData) if they differ.
std::string one_layer_type(const HfConfig& config);

// Sets a window of "sliding_window" keys, including the token itself.
void set_window(const HfConfig& config, ModelConfig& model);

// The activation that `key` names; `otherwise` if the key is absent.
ActivationKind hf_activation(const HfConfig& config, const std::string& key,
                             const std::string& otherwise);

}  // namespace piton
