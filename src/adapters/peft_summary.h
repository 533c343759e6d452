// What an adapter of PEFT is, read without the model that it is for: for piton inspect.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "adapters/peft_config.h"

namespace piton {

struct PeftTensor {
  std::string name;
  std::string dtype;  // as safetensors spells it
  std::vector<std::int64_t> shape;
};

struct PeftSummary {
  PeftConfig config;
  std::string base;                  // the model that it was trained on, as it says; may be ""
  std::vector<std::string> targets;  // last parts of the names of adapted modules, and parameters
                                     // of modules, ascending
  std::int64_t modules = 0;          // that are adapted
  std::vector<std::string> trained;  // other modules, which are trained in full, ascending
  std::int64_t parameters = 0;
  std::vector<PeftTensor> tensors;  // by name
};

// Throws Error(kData) as PeftSource does for a folder without weights, or with a configuration or a
// file that cannot be read; whether tensors fit a model is not checked.
PeftSummary peft_summary(const std::filesystem::path& folder);

}  // namespace piton
