// Makes the config.json of a model that was not read from one.
#pragma once

#include <string>

#include "base/json.h"
#include "huggingface/families/hf_family.h"

namespace piton {

// A family that can represent a model, and the model's config.json.
struct HfDescription {
  HfFamily family;
  nlohmann::ordered_json config;
  std::string note;  // for the user: what of `origin` could not be kept; "": nothing
};

// The family is that of `origin`, else that of the model's name, else the first that holds the
// model. Weights are of `model.dtype`. Fields that only training reads need not be held. Throws
// Error(kData) naming what no family has.
//
// `origin`: huggingface/files/origin.h; null: not known. If it describes a whole model, all its
// keys are kept, except for those that say in what `model` has become another.
HfDescription hf_config_of(const ModelConfig& model, const nlohmann::ordered_json& origin = {});

// The first property in which `other` computes differently ("its attention window"); "" if the
// models are the same except for what only training reads.
std::string model_difference(const ModelConfig& model, const ModelConfig& other);

}  // namespace piton
