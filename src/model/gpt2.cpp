#include "model/families.h"

// GPT-2 (Radford et al. 2019): learned positions, layer norm before each branch, tanh GELU, biases
// in all linears, a head that shares the table of the token embedding, dropout 0.1.
//
// GPT-NeoX (Black et al. 2022, arXiv:2204.06745) is GPT-2 with rotary positions in a quarter of
// each head, a parallel residual, the exact GELU, an untied head and no dropout. Pythia (Biderman
// et al. 2023, arXiv:2304.01373) has several sizes of it.
//
// GPT-J (Wang & Komatsuzaki 2021, github.com/kingoflolz/mesh-transformer-jax) is GPT-NeoX with one
// norm for both branches, the tanh GELU, rotary positions of interleaved channels, no biases in
// attention, and a head with a bias. Phi-1 to Phi-2 (Gunasekar et al. 2023, arXiv:2306.11644) have
// its blocks with biases everywhere, and channels in halves.
//
// Bloom (BigScience 2022, arXiv:2211.05100): GPT-2 with ALiBi instead of a position table and with
// a norm after the embedding; no dropout.
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

ModelConfig gpt_neox_facts() {
  ModelConfig config = gpt2_facts();
  config.family = "gpt_neox";
  config.positions = PositionKind::kRotary;
  config.rotary_share = 0.25;
  config.activation = ActivationKind::kGeluErf;
  config.parallel_residual = true;
  config.tied = false;
  config.hidden_dropout = config.attention_dropout = 0;
  return config;
}

ModelConfig phi_facts() {
  ModelConfig config = gpt_neox_facts();
  config.family = "phi";
  config.rotary_share = 0.5;
  config.activation = ActivationKind::kGeluTanh;
  config.single_norm = true;
  config.head_bias = true;
  return config;
}

ModelConfig gptj_facts() {
  ModelConfig config = phi_facts();
  config.family = "gptj";
  config.rotary_share = 0.25;
  config.rotary_pairs = true;
  config.qkv_biases = config.output_bias = false;
  return config;
}

ModelConfig bloom_facts() {
  ModelConfig config = gpt2_facts();
  config.family = "bloom";
  config.positions = PositionKind::kAlibi;
  config.embedding_norm = true;
  config.hidden_dropout = 0;
  config.attention_dropout = 0;
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

Preset sized(std::string name, const Gpt2Sizes& sizes, ModelConfig config = gpt2_facts()) {
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
          sized("gpt2-tiny", {4, 64, 4, 257, 128}),
          sized("pythia-70m", {6, 512, 8, 50304, 2048}, gpt_neox_facts()),
          sized("pythia-160m", {12, 768, 12, 50304, 2048}, gpt_neox_facts()),
          sized("pythia-410m", {24, 1024, 16, 50304, 2048}, gpt_neox_facts()),
          sized("pythia-1b", {16, 2048, 8, 50304, 2048}, gpt_neox_facts())};
}

}  // namespace piton
