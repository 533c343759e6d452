// The family and the model of a Hugging Face folder, by its config.json.
#pragma once

#include "huggingface/families/hf_family.h"
#include "huggingface/files/config_file.h"
#include "model/config.h"

namespace piton {

// The family of a model_type. Throws Error(kData) with the key if it is unknown, or if the
// architecture has another head than that of a language model.
HfFamily hf_family(const HfConfig& config);

// The layers that predict later tokens, of a family that has them.
void set_later_layers(const HfConfig& config, const HfFamily& family, ModelConfig& model);

// The model that config.json describes, checked. Weights have the file's type if Piton computes in
// it (bfloat16), else fp32. Throws Error(kData) with file and key.
ModelConfig hf_model(const HfConfig& config);

}  // namespace piton
