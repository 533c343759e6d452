// Classifiers of texts and reward models in Hugging Face folders: ...ForSequenceClassification. The
// head of a decoder is score.weight [N, h] (Transformers: modeling_layers.py,
// GenericForSequenceClassification), of BERT classifier.weight and .bias after its pooler, of
// RoBERTa both are in its classifier.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "huggingface/families/hf_family.h"

namespace piton {

inline constexpr const char* kHfLabelRows = "score.weight";  // of decoders

// Whether this is the matrix with a row for each label, of any family.
bool is_label_rows(const std::string& tensor);

// The architecture of classifiers of a model_type; "" for those that Transformers has not.
std::string label_architecture(const std::string& model_type);

// Makes `model`, as the family reads it, a classifier if config.json names that architecture.
// Throws Error(kData) for labels that it does not say, or of which a text may have several.
void set_label_head(const HfConfig& config, ModelConfig& model);

// The keys of config.json in which the classifier `model` differs from a language model.
nlohmann::ordered_json label_keys(const std::string& model_type, const ModelConfig& model);

// HfFamily::places of the family, for a model with either head.
std::vector<HfPlace> hf_places(const HfFamily& family, const ModelConfig& model);

}  // namespace piton
