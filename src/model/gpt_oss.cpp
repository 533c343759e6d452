#include "model/families.h"

// gpt-oss (OpenAI 2025, arXiv:2508.10925): LLaMA with experts that have biases, gates of the fast
// GELU within a bound, a learned score of each head that has no value (a sink), and a window of 128
// keys in every other layer.
namespace piton {

ModelConfig gpt_oss_facts() {
  ModelConfig config = llama_facts();
  config.family = "gpt_oss";
  config.rotary_base = 150000;
  config.biases = config.output_bias = config.qkv_biases = true;
  config.activation = ActivationKind::kGeluFast;
  config.gate_rule = {.bound = 7, .offset = 1};
  config.softmax = SoftmaxKind::kLearnable;
  config.experts = {.experts = 32, .choices = 4};
  return config;
}

namespace {

Preset gpt_oss(std::string name, std::int64_t layers, std::int64_t experts) {
  ModelConfig config = gpt_oss_facts();
  config.layers = layers;
  config.hidden = config.ffn_hidden = 2880;
  config.heads = 64;
  config.groups = 8;
  config.head_size = 64;
  config.vocabulary = 201088;
  config.max_positions = 131072;
  config.window_before = 127;
  config.full_attention_every = 2;
  config.rotary_scaling = {.kind = RotaryScaling::Kind::kYarn,
                           .factor = 32,
                           .original_positions = 4096,
                           .whole_pairs = false};
  config.experts->experts = experts;
  return {std::move(name), config};
}

}  // namespace

std::vector<Preset> gpt_oss_presets() {
  return {gpt_oss("gpt-oss-20b", 24, 32), gpt_oss("gpt-oss-120b", 36, 128)};
}

}  // namespace piton
