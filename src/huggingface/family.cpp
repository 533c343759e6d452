#include "huggingface/family.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "huggingface/families/families.h"
#include "huggingface/files/quantized_tensors.h"
#include "huggingface/label_head.h"

namespace piton {
namespace {

// Refuses features that no family here has. A model without the key, or with the value that changes
// nothing, is accepted.
void refuse_other_models(const HfConfig& config) {
  check_quantization(config);
  if (config.flag("use_mrope", false)) config.refuse("use_mrope", "false");
}

}  // namespace

HfFamily hf_family(const HfConfig& config) {
  const std::string type = config.word("model_type");
  std::vector<std::string> known;
  for (const HfFamily& family : hf_families()) {
    known.insert(known.end(), family.model_types.begin(), family.model_types.end());
    if (std::ranges::find(family.model_types, type) == family.model_types.end()) continue;
    std::vector<std::string> heads = family.architectures;
    if (const std::string labels = label_architecture(type); !labels.empty())
      heads.push_back(labels);
    for (const std::string& name : config.words("architectures")) {
      if (std::ranges::find(heads, name) == heads.end())
        config.refuse("architectures", fmt::format("{}", fmt::join(heads, " or ")));
    }
    return family;
  }
  config.refuse("model_type", fmt::format("{}", fmt::join(known, ", ")));
}

void set_later_layers(const HfConfig& config, const HfFamily& family, ModelConfig& model) {
  const std::string& key = family.later_layers;
  if (key.empty() || !config.has(key) || config.number(key) == 0) return;
  const std::int64_t layers = config.size(key);
  // Others are left out: those that the names of the family cannot hold, and those that are not
  // like the last layer.
  if (family.most_later_layers != 0 && layers > family.most_later_layers) return;
  if (!model.has_states(model.layers - 1)) model.mtp_layers = layers;
}

ModelConfig hf_model(const HfConfig& config) {
  const HfFamily& family = hf_family(config);
  refuse_other_models(config);
  ModelConfig model = family.model(config);
  set_later_layers(config, family, model);
  const auto held = [&](const char* key, double cap) {
    if (config.has(key) && cap == 0) config.refuse(key, "null");
  };
  held("attn_logit_softcapping", model.attention_soft_cap);
  held("final_logit_softcapping", model.logit_soft_cap);
  set_label_head(config, model);
  const std::string dtype = config.word(config.has("dtype") ? "dtype" : "torch_dtype", "float32");
  model.dtype = dtype == "bfloat16" ? DType::kBF16 : DType::kF32;
  try {
    model.check();
  } catch (const Error& error) {
    // The message names flags, which the reader of this file did not give.
    throw Error(Fault::kData, "{}: describes an impossible model: {}", config.where(),
                error.what());
  }
  return model;
}

}  // namespace piton
