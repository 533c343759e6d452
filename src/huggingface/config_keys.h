// Makes the config.json of a model that was not read from one.
#pragma once

#include <string>

#include "base/json.h"
#include "huggingface/family.h"

namespace piton {

// A family that can represent a model, and the model's config.json.
struct HfDescription {
  HfFamily family;
  nlohmann::ordered_json config;
};

// For a model that comes from elsewhere: the family of the model_type `preferred`, else that of its
// name, else the first that holds it. Weights are of `model.dtype`. Fields that only training reads
// need not be held. Throws Error(kData) naming what no family has.
HfDescription hf_config_of(const ModelConfig& model, const std::string& preferred = "");

// The first property in which `other` computes differently ("its attention window"); "" if the
// models are the same except for what only training reads.
std::string model_difference(const ModelConfig& model, const ModelConfig& other);

}  // namespace piton
