#include "model/families.h"

// Qwen (Bai et al. 2023, arXiv:2309.16609; Yang et al. 2024, 2025, arXiv:2407.10671, 2505.09388) is
// LLaMA with a larger rotary base. Versions up to 2.5 have biases of query, key and value; version
// 3 has norms of each head of query and key instead. Qwen 3 MoE is version 3 with experts. Qwen 2
// MoE is version 2 with experts, whose weights are those among all of them, and with an MLP next to
// them whose rows have a gate. Qwen3-Next (and 3.5, without experts) has the gated delta rule in
// three of four layers, a gate of attention in the others, gains of norms around 1, and rotates a
// quarter of each head.
namespace piton {

ModelConfig qwen2_facts() {
  ModelConfig config = llama_facts();
  config.family = "qwen2";
  config.norm_eps = 1e-6;
  config.rotary_base = 1e6;
  config.qkv_biases = true;
  return config;
}

ModelConfig qwen3_facts() {
  ModelConfig config = qwen2_facts();
  config.family = "qwen3";
  config.qkv_biases = false;
  config.head_norms = true;
  return config;
}

ModelConfig qwen2_moe_facts() {
  ModelConfig config = qwen2_facts();
  config.family = "qwen2_moe";
  config.experts = {.experts = 60, .choices = 4, .normalized = false};
  return config;
}

ModelConfig qwen3_moe_facts() {
  ModelConfig config = qwen3_facts();
  config.family = "qwen3_moe";
  config.experts = {.experts = 128, .choices = 8};
  return config;
}

ModelConfig qwen3_5_facts() {
  ModelConfig config = qwen3_facts();
  config.family = "qwen3_5";
  config.rotary_base = 1e7;
  config.rotary_share = 0.25;
  config.gains_from_one = true;
  config.output_gate = true;
  config.delta.emplace();
  return config;
}

ModelConfig qwen3_next_facts() {
  ModelConfig config = qwen3_5_facts();
  config.family = "qwen3_next";
  config.experts = {.experts = 512, .choices = 10, .shared_ffn_hidden = 512, .shared_gate = true};
  return config;
}

namespace {

struct QwenSizes {
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t ffn_hidden;
  std::int64_t heads;
  std::int64_t groups;
  std::int64_t head_size;
  std::int64_t max_positions;
};

// The head of small models shares the token table.
Preset sized(std::string name, ModelConfig config, const QwenSizes& sizes) {
  config.tied = !config.experts;
  config.layers = sizes.layers;
  config.hidden = sizes.hidden;
  config.ffn_hidden = sizes.ffn_hidden;
  config.heads = sizes.heads;
  config.groups = sizes.groups;
  config.head_size = sizes.head_size;
  config.vocabulary = 151936;
  config.max_positions = sizes.max_positions;
  return {std::move(name), config};
}

ModelConfig qwen2_moe_sizes() {
  ModelConfig config = qwen2_moe_facts();
  config.experts->shared_ffn_hidden = 5632;
  config.experts->shared_gate = true;
  return config;
}

// Small models have as many heads of values of the gated delta rule as of keys.
ModelConfig qwen3_5_small_facts() {
  ModelConfig config = qwen3_5_facts();
  config.delta->value_heads = config.delta->key_heads;
  return config;
}

Preset sized_qwen3_5(std::string name, ModelConfig config, const QwenSizes& sizes, bool tied) {
  Preset preset = sized(std::move(name), std::move(config), sizes);
  preset.config.vocabulary = 248320;
  preset.config.tied = tied;
  return preset;
}

}  // namespace

std::vector<Preset> qwen_presets() {
  return {
      sized("qwen1.5-0.5b", qwen2_facts(), {24, 1024, 2816, 16, 16, 64, 32768}),
      sized("qwen1.5-moe-a2.7b", qwen2_moe_sizes(), {24, 2048, 1408, 16, 16, 128, 8192}),
      sized("qwen2.5-0.5b", qwen2_facts(), {24, 896, 4864, 14, 2, 64, 32768}),
      sized("qwen3-0.6b", qwen3_facts(), {28, 1024, 3072, 16, 8, 128, 40960}),
      sized("qwen3-30b-a3b", qwen3_moe_facts(), {48, 2048, 768, 32, 4, 128, 40960}),
      sized("qwen3-next-80b-a3b", qwen3_next_facts(), {48, 2048, 512, 16, 2, 256, 262144}),
      sized_qwen3_5("qwen3.5-0.8b", qwen3_5_small_facts(), {24, 1024, 3584, 8, 2, 256, 262144},
                    true),
      sized_qwen3_5("qwen3.5-9b", qwen3_5_facts(), {32, 4096, 12288, 16, 4, 256, 262144}, false)};
}

}  // namespace piton
