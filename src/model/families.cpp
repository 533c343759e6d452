#include "model/families.h"

#include <numeric>

namespace piton {
namespace {

std::vector<Preset> all_presets() {
  std::vector<Preset> all = gpt2_presets();
  for (Preset& one : llama_presets()) all.push_back(std::move(one));
  for (Preset& one : mamba_presets()) all.push_back(std::move(one));
  for (Preset& one : lfm2_presets()) all.push_back(std::move(one));
  for (Preset& one : gpt_oss_presets()) all.push_back(std::move(one));
  for (Preset& one : qwen_presets()) all.push_back(std::move(one));
  for (Preset& one : deepseek_presets()) all.push_back(std::move(one));
  for (Preset& one : bert_presets()) all.push_back(std::move(one));
  for (Preset& one : t5_presets()) all.push_back(std::move(one));
  return all;
}

std::string suggestion(const std::string& given, const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(given, known);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

}  // namespace

void leave_out_mlps(ModelConfig& config) {
  config.bare_layers.resize(static_cast<std::size_t>(config.layers));
  std::iota(config.bare_layers.begin(), config.bare_layers.end(), 0);
}

ModelConfig family_facts(const std::string& family) {
  if (family == "gpt2") return gpt2_facts();
  if (family == "gpt_neox") return gpt_neox_facts();
  if (family == "bloom") return bloom_facts();
  if (family == "llama") return llama_facts();
  if (family == "mixtral") return mixtral_facts();
  if (family == "glm4_moe") return glm4_moe_facts();
  if (family == "qwen2") return qwen2_facts();
  if (family == "qwen3") return qwen3_facts();
  if (family == "qwen2_moe") return qwen2_moe_facts();
  if (family == "qwen3_moe") return qwen3_moe_facts();
  if (family == "qwen3_5") return qwen3_5_facts();
  if (family == "qwen3_next") return qwen3_next_facts();
  if (family == "deepseek_v2") return deepseek_v2_facts();
  if (family == "deepseek_v3") return deepseek_v3_facts();
  if (family == "gemma") return gemma_facts();
  if (family == "gpt_oss") return gpt_oss_facts();
  if (family == "gptj") return gptj_facts();
  if (family == "phi") return phi_facts();
  if (family == "granite") return granite_facts();
  if (family == "mamba2") return mamba2_facts();
  if (family == "lfm2") return lfm2_facts();
  if (family == "lfm2_moe") return lfm2_moe_facts();
  if (family == "olmo2") return olmo2_facts();
  if (family == "bert") return bert_facts();
  if (family == "t5") return t5_facts();
  const std::vector<std::string> known{
      "gpt2",      "gpt_neox",  "bloom",   "llama",      "mixtral",  "qwen2",       "qwen3",
      "qwen2_moe", "qwen3_moe", "qwen3_5", "qwen3_next", "glm4_moe", "deepseek_v2", "deepseek_v3",
      "gemma",     "gpt_oss",   "gptj",    "phi",        "granite",  "olmo2",       "mamba2",
      "lfm2",      "lfm2_moe",  "bert",    "t5"};
  throw Error(Fault::kUsage, "--model-family: got \"{}\", wanted {}{}", family,
              fmt::join(known, ", "), suggestion(family, known));
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& one : all_presets()) names.push_back(one.name);
  return names;
}

ModelConfig preset(const std::string& name) {
  for (const Preset& one : all_presets()) {
    if (one.name == name) return one.config;
  }
  const std::vector<std::string> names = preset_names();
  throw Error(Fault::kUsage, "--model: got \"{}\", wanted one of {}{}", name,
              fmt::join(names, ", "), suggestion(name, names));
}

}  // namespace piton
