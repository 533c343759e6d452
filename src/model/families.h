// The model families: one small file of facts each, and the named sizes. No code depends on a
// family's name; everything follows from the ModelConfig.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace piton {

// Facts of a family, sizes left at 0. model/gpt2.cpp, llama.cpp, qwen.cpp.
ModelConfig gpt2_facts();
ModelConfig llama_facts();
ModelConfig qwen2_facts();
ModelConfig qwen3_facts();

struct Preset {
  std::string name;
  ModelConfig config;
};
std::vector<Preset> gpt2_presets();
std::vector<Preset> llama_presets();
std::vector<Preset> qwen_presets();

// Throws Error(kUsage), with the nearest name, for one that is not there.
ModelConfig family_facts(const std::string& family);
ModelConfig preset(const std::string& name);
std::vector<std::string> preset_names();

}  // namespace piton
