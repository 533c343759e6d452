// Reward models in Hugging Face folders: ...ForSequenceClassification with one label. Their head is
// score.weight [1, h] (Transformers: modeling_layers.py, GenericForSequenceClassification).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "huggingface/families/hf_family.h"

namespace piton {

// "" for families whose reward models Transformers has not.
std::string reward_architecture(const HfFamily& family);

// Makes `model`, as the family reads it, a reward model if config.json names that architecture.
// Throws Error(kData) if it has another number of labels than 1.
void set_reward_head(const HfConfig& config, const HfFamily& family, ModelConfig& model);

// The keys of config.json in which a reward model differs from a language model.
nlohmann::ordered_json reward_keys(const HfFamily& family);

// HfFamily::places of the family, for a model with either head.
std::vector<HfPlace> hf_places(const HfFamily& family, const ModelConfig& model);

}  // namespace piton
