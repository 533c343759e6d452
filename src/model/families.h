// The model families and the presets (named sizes). Each family is a function of facts. No code
// depends on a family's name, only on the ModelConfig.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace piton {

// The facts of a family; sizes are 0. In model/gpt2.cpp, llama.cpp, qwen.cpp and encoders.cpp.
ModelConfig gpt2_facts();
ModelConfig gpt_neox_facts();
ModelConfig bloom_facts();
ModelConfig llama_facts();
ModelConfig qwen2_facts();
ModelConfig qwen3_facts();
ModelConfig mixtral_facts();
ModelConfig glm4_moe_facts();
ModelConfig qwen2_moe_facts();
ModelConfig qwen3_moe_facts();
ModelConfig qwen3_5_facts();
ModelConfig qwen3_next_facts();
ModelConfig deepseek_v2_facts();
ModelConfig deepseek_v3_facts();
ModelConfig gemma_facts();
ModelConfig gpt_oss_facts();
ModelConfig gptj_facts();
ModelConfig phi_facts();
ModelConfig granite_facts();
ModelConfig mamba2_facts();
ModelConfig lfm2_facts();
ModelConfig lfm2_moe_facts();
ModelConfig olmo2_facts();
ModelConfig bert_facts();
ModelConfig t5_facts();

struct Preset {
  std::string name;
  ModelConfig config;
};
std::vector<Preset> gpt2_presets();
std::vector<Preset> llama_presets();
std::vector<Preset> gpt_oss_presets();
std::vector<Preset> mamba_presets();
std::vector<Preset> lfm2_presets();
std::vector<Preset> qwen_presets();
std::vector<Preset> deepseek_presets();
std::vector<Preset> bert_presets();
std::vector<Preset> t5_presets();

// Of a model whose layers are set: none of them has an MLP, as in models of state spaces alone.
void leave_out_mlps(ModelConfig& config);

// These throw Error(kUsage) with the nearest known name if there is no such family or preset.
ModelConfig family_facts(const std::string& family);
ModelConfig preset(const std::string& name);
std::vector<std::string> preset_names();

}  // namespace piton
