#include "model/families.h"

// GPT-2 (Radford et al. 2019): learned positions, layer norm before each branch, tanh GELU, biases
// in all linears, a head that shares the table of the token embedding, dropout 0.1.
namespace piton {

ModelConfig gpt2_facts() {
  ModelConfig config;
  config.family = "gpt2";
  config.norm = NormKind::kLayer;
  config.norm_eps = 1e-5;
  config.positions = PositionKind::kLearned;
  config.activation = ActivationKind::kGeluTanh;
  config.gated = false;
  config.biases = config.output_bias = config.qkv_biases = true;
  config.tied = true;
  config.hidden_dropout = 0.1;
  config.attention_dropout = 0.1;
  return config;
}

namespace {

struct Gpt2Sizes {
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t vocabulary;
  std::int64_t max_positions;
};

Preset sized(std::string name, const Gpt2Sizes& sizes) {
  ModelConfig config = gpt2_facts();
  config.layers = sizes.layers;
  config.hidden = sizes.hidden;
  config.ffn_hidden = 4 * sizes.hidden;
  config.heads = sizes.heads;
  config.groups = sizes.heads;
  config.head_size = sizes.hidden / sizes.heads;
  config.vocabulary = sizes.vocabulary;
  config.max_positions = sizes.max_positions;
  return {std::move(name), config};
}

}  // namespace

std::vector<Preset> gpt2_presets() {
  return {sized("gpt2-124m", {12, 768, 12, 50257, 1024}),
          sized("gpt2-355m", {24, 1024, 16, 50257, 1024}),
          sized("gpt2-tiny", {4, 64, 4, 257, 128})};
}

}  // namespace piton
