// What LLaMA and the families after it have in common.
#pragma once

#include <string>
#include <vector>

#include "huggingface/family.h"

namespace piton {

// Sizes, norm, rotary positions, activation, dropout and window of `config`; biases and norms of
// heads as `facts` has them. `longest`: the key of the longest sequence.
ModelConfig llama_like_model(const HfConfig& config, ModelConfig facts,
                             const std::string& longest = "max_position_embeddings");

// The other way: the keys that llama_like_model() and set_rotary() read.
nlohmann::ordered_json llama_like_keys(const ModelConfig& model);
// "sliding_window": a number of keys, or null.
nlohmann::ordered_json window_key(const ModelConfig& model);
// The name of an activation in config.json.
std::string hf_activation_name(ActivationKind kind);

// Every canonical tensor of the model under LLaMA's names, beginning with "model." but for the
// head.
std::vector<HfPlace> llama_like_places(const ModelConfig& model);

// "rope_parameters" (Transformers 5), else "rope_theta" and "rope_scaling" (4).
void set_rotary(const HfConfig& config, ModelConfig& model);
// From one object of "rope_parameters".
void set_rotary(const HfConfig& config, const HfConfig& rope, ModelConfig& model);

// "layer_types" that all are one. Nothing: there are none. Throws Error(kData) where they are
// mixed.
std::string one_layer_type(const HfConfig& config);

// "sliding_window" keys, a token's own among them.
void set_window(const HfConfig& config, ModelConfig& model);

// The activation that `key` names; `otherwise` where it is not there.
ActivationKind hf_activation(const HfConfig& config, const std::string& key,
                             const std::string& otherwise);

}  // namespace piton
