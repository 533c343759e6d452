#include "model/families.h"

// BERT as Megatron-LM trains it: an encoder with learned positions, layer norm before each branch,
// tanh GELU, biases in all linears, heads for masked words and for the order of two parts of a text
// (model/encoder_options.h).
namespace piton {

ModelConfig bert_facts() {
  ModelConfig config;
  config.family = "bert";
  config.norm = NormKind::kLayer;
  config.norm_eps = 1e-5;
  config.positions = PositionKind::kLearned;
  config.activation = ActivationKind::kGeluTanh;
  config.gated = false;
  config.biases = config.output_bias = config.qkv_biases = true;
  config.tied = true;
  config.hidden_dropout = 0.1;
  config.attention_dropout = 0.1;
  config.encoder.emplace();
  return config;
}

namespace {

struct BertSizes {
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t vocabulary;
  std::int64_t max_positions;
};

Preset bert_of_sizes(std::string name, const BertSizes& sizes) {
  ModelConfig config = bert_facts();
  config.layers = sizes.layers;
  config.hidden = sizes.hidden;
  config.ffn_hidden = 4 * sizes.hidden;
  config.heads = config.groups = sizes.heads;
  config.head_size = sizes.hidden / sizes.heads;
  config.vocabulary = sizes.vocabulary;
  config.max_positions = sizes.max_positions;
  return {std::move(name), config};
}

}  // namespace

std::vector<Preset> bert_presets() {
  return {bert_of_sizes("bert-110m", {12, 768, 12, 30522, 512}),
          bert_of_sizes("bert-tiny", {4, 64, 4, 257, 128})};
}

}  // namespace piton
