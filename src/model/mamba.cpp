// Mamba-2 (Dao & Gu 2024, arXiv:2405.21060): layers of state spaces without attention and MLPs.
#include <numeric>

#include "model/families.h"

namespace piton {

ModelConfig mamba2_facts() {
  ModelConfig config = llama_facts();
  config.family = "mamba2";
  config.positions = PositionKind::kNone;
  config.rotary_base = ModelConfig{}.rotary_base;
  config.heads = config.groups = 1;  // of no layer
  config.tied = true;
  config.state_space.emplace();
  config.state_space->groups = 1;
  return config;
}

// The smallest of those that the authors published; its vocabulary is padded.
std::vector<Preset> mamba_presets() {
  ModelConfig config = mamba2_facts();
  config.layers = 24;
  config.hidden = config.head_size = 768;
  config.ffn_hidden = 4 * config.hidden;
  config.vocabulary = 50288;
  config.max_positions = 2048;
  config.state_space->heads = 24;
  config.bare_layers.resize(24);
  std::iota(config.bare_layers.begin(), config.bare_layers.end(), 0);
  return {{"mamba2-130m", config}};
}

}  // namespace piton
