// Makes the config.json of a model that was not read from one.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "huggingface/family.h"

namespace piton {

// A family that can represent a model, and the model's config.json.
struct HfDescription {
  HfFamily family;
  nlohmann::ordered_json config;
};

// For a model from elsewhere: the family of its name, else the first that can represent it. Weights
// have type `model.dtype`. Fields that only training reads may be lost. Throws Error(kData) with
// the property that no family has.
HfDescription hf_config_of(const ModelConfig& model);

// The first property in which `other` computes differently ("its attention window"); "" if the
// models are the same except for what only training reads.
std::string model_difference(const ModelConfig& model, const ModelConfig& other);

}  // namespace piton
