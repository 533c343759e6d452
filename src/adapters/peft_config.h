// adapter_config.json of an adapter of PEFT (format: peft/tuners/lora/config.py of PEFT 0.4 to
// 0.21).
//
// Keys that change what the adapter computes are read or refused; keys that only say how it was
// trained or started (init_lora_weights of a kind that leaves the model as it was) are ignored. A
// key that is not known has no effect.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace piton {

struct PeftConfig {
  std::int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;
  bool rank_stabilized = false;  // use_rslora: scale = alpha / sqrt(rank)
  bool magnitudes = false;       // use_dora
  // The table of a tied model is trained as one, not apart from the head.
  bool ties_trained_weights = false;
  // Exceptions, by the end of a module's name, or by all of it after "^". The first one that fits
  // counts.
  std::vector<std::pair<std::string, std::int64_t>> ranks;
  std::vector<std::pair<std::string, double>> alphas;
  // target_parameters: parameters that have adapters themselves, by the ends of their names.
  std::vector<std::string> parameters;

  // Of the module with this name ("model.layers.0.self_attn.q_proj"), whose weight may be one of
  // `parameters`, or of the parameter with this name.
  std::int64_t rank_of(const std::string& module) const;
  double scale_of(const std::string& module) const;
  // Whether `parameters` name this one ("model.layers.0.mlp.experts.down_proj").
  bool targets_parameter(const std::string& name) const;
};

// Throws Error(kData) with `where` and the key: text that is not JSON, a value of the wrong kind,
// another method than LoRA, or a variant of it that Piton does not compute.
PeftConfig parse_peft_config(const std::string& text, const std::string& where);

}  // namespace piton
