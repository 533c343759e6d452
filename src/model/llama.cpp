#include "model/families.h"

// LLaMA and its successors (Touvron et al. 2023, arXiv:2302.13971, 2307.09288): rotary positions,
// RMS norm before each branch, SwiGLU, no biases, untied head, grouped queries, no dropout. Mixtral
// (Jiang et al. 2024, arXiv:2401.04088) is LLaMA with 8 experts, 2 of them for each token. GLM-4.5
// (Zeng et al. 2025, arXiv:2508.06471) rotates half of each head, has biases of query, key and
// value, and experts that are chosen by sigmoids with a bias.
// DeepSeek-V2 (DeepSeek-AI 2024, arXiv:2405.04434) is LLaMA with multi-head latent attention and
// with experts, whose weights are those among all of them; all tokens share an MLP, and the first
// layers have no experts.
namespace piton {

ModelConfig llama_facts() {
  ModelConfig config;
  config.family = "llama";
  config.norm = NormKind::kRms;
  config.norm_eps = 1e-5;
  config.positions = PositionKind::kRotary;
  config.rotary_base = 10000;
  config.activation = ActivationKind::kSilu;
  config.gated = true;
  config.biases = config.output_bias = config.qkv_biases = false;
  config.tied = false;
  return config;
}

// Gemma (Gemma Team 2024, 2025, arXiv:2403.08295, 2408.00118, 2503.19786): LLaMA with an embedding
// times sqrt(h) that the head shares, GeGLU, and norm weights stored as gain - 1. Gemma 2 and 3
// also have norms at the ends of branches, and windows in most layers.
ModelConfig gemma_facts() {
  ModelConfig config = llama_facts();
  config.family = "gemma";
  config.norm_eps = 1e-6;
  config.activation = ActivationKind::kGeluTanh;
  config.gains_from_one = true;
  config.scaled_embedding = true;
  config.tied = true;
  return config;
}

// Granite (IBM 2024, github.com/ibm-granite/granite-3.0-language-models): LLaMA with factors of the
// embedding, branches and logits; those of its scores are one over the width of a head.
ModelConfig granite_facts() {
  ModelConfig config = llama_facts();
  config.family = "granite";
  config.embedding_factor = 12;
  config.branch_factor = 0.22;
  config.logit_divisor = 8;
  config.tied = true;
  return config;
}

// Mamba-2 (Dao & Gu 2024, arXiv:2405.21060): layers of state spaces, without attention and MLPs.
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

// OLMo 2 (Walsh et al. 2024, arXiv:2501.00656): LLaMA with norms at the ends of branches in place
// of those at their beginnings, and norms of all heads of query and of key.
ModelConfig olmo2_facts() {
  ModelConfig config = llama_facts();
  config.family = "olmo2";
  config.norm_eps = 1e-6;
  config.rotary_base = 500000;
  config.start_norms = false;
  config.end_norms = true;
  config.head_norms = config.joint_head_norms = true;
  return config;
}

// LFM2 (Amini et al. 2025, arXiv:2511.23404): LLaMA with norms of heads, and short convolutions in
// place of attention in layers that are given. The form with experts is that of DeepSeek-V3 without
// groups and without an MLP that all tokens share.
ModelConfig lfm2_facts() {
  ModelConfig config = llama_facts();
  config.family = "lfm2";
  config.rotary_base = 1e6;
  config.head_norms = true;
  config.tied = true;
  return config;
}

ModelConfig lfm2_moe_facts() {
  ModelConfig config = lfm2_facts();
  config.family = "lfm2_moe";
  config.experts = {.experts = 32,
                    .choices = 4,
                    .score = ScoreKind::kSigmoid,
                    .choice_bias = true,
                    .bias_rate = 1e-3};
  return config;
}

ModelConfig mixtral_facts() {
  ModelConfig config = llama_facts();
  config.family = "mixtral";
  config.rotary_base = 1e6;
  config.experts = {.experts = 8, .choices = 2};
  return config;
}

ModelConfig glm4_moe_facts() {
  ModelConfig config = llama_facts();
  config.family = "glm4_moe";
  config.rotary_base = 1e6;
  config.rotary_share = 0.5;
  config.qkv_biases = true;
  config.experts = {.experts = 128,
                    .choices = 8,
                    .score = ScoreKind::kSigmoid,
                    .choice_bias = true,
                    .bias_rate = 1e-3};
  return config;
}

// gpt-oss (OpenAI 2025, arXiv:2508.10925): LLaMA with experts that have biases, gates of the fast
// GELU within a bound, a learned score of each head that has no value (a sink), and a window of 128
// keys in every other layer.
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

struct LlamaSizes {
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t ffn_hidden;
  std::int64_t heads;
  std::int64_t groups;
  std::int64_t vocabulary;
  std::int64_t max_positions;
};

Preset sized(std::string name, const LlamaSizes& sizes, ModelConfig config = llama_facts()) {
  config.layers = sizes.layers;
  config.hidden = sizes.hidden;
  config.ffn_hidden = sizes.ffn_hidden;
  config.heads = sizes.heads;
  config.groups = sizes.groups;
  config.head_size = sizes.hidden / sizes.heads;
  config.vocabulary = sizes.vocabulary;
  config.max_positions = sizes.max_positions;
  return {std::move(name), config};
}

Preset glm_4_5_air() {
  ModelConfig config = glm4_moe_facts();
  config.experts->ffn_hidden = config.experts->shared_ffn_hidden = 1408;
  config.experts->dense_layers = {0};
  Preset air = sized("glm-4.5-air", {46, 4096, 10944, 96, 8, 151552, 131072}, config);
  air.config.head_size = 128;
  return air;
}

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

std::vector<Preset> lfm2_presets() {
  const auto with_attention = [](Preset preset, std::vector<std::int64_t> layers) {
    preset.config.short_convolution.emplace().attention_layers = std::move(layers);
    return preset;
  };
  const std::vector<std::int64_t> six{2, 5, 8, 10, 12, 14};
  const ModelConfig dense = lfm2_facts();
  ModelConfig experts = lfm2_moe_facts();
  experts.experts->ffn_hidden = 1792;
  experts.experts->dense_layers = {0, 1};
  return {with_attention(sized("lfm2-350m", {16, 1024, 4608, 16, 8, 65536, 128000}, dense), six),
          with_attention(sized("lfm2-700m", {16, 1536, 6912, 24, 8, 65536, 128000}, dense), six),
          with_attention(sized("lfm2-1.2b", {16, 2048, 8192, 32, 8, 65536, 128000}, dense), six),
          with_attention(sized("lfm2-8b-a1b", {24, 2048, 7168, 32, 8, 65536, 128000}, experts),
                         {2, 6, 10, 14, 18, 21})};
}

std::vector<Preset> llama_presets() {
  return {sized("llama-134m", {12, 768, 2048, 12, 12, 32000, 2048}),
          sized("llama-1.1b", {22, 2048, 5632, 32, 4, 32000, 2048}),
          sized("llama2-7b", {32, 4096, 11008, 32, 32, 32000, 4096}),
          sized("mixtral-8x7b", {32, 4096, 14336, 32, 8, 32000, 32768}, mixtral_facts()),
          glm_4_5_air(),
          sized("llama-tiny", {4, 64, 176, 4, 2, 257, 128}),
          sized("mixtral-tiny", {4, 64, 88, 4, 2, 257, 128}, mixtral_facts())};
}

ModelConfig deepseek_v2_facts() {
  ModelConfig config = llama_facts();
  config.family = "deepseek_v2";
  config.norm_eps = 1e-6;
  config.latent = LatentFacts{};
  config.head_norms = true;
  config.rotary_pairs = true;
  config.experts = {.experts = 64, .choices = 6, .normalized = false};
  return config;
}

ModelConfig deepseek_v3_facts() {
  ModelConfig config = deepseek_v2_facts();
  config.family = "deepseek_v3";
  config.experts = ExpertFacts{.experts = 256, .choices = 8, .score = ScoreKind::kSigmoid};
  return config;
}

std::vector<Preset> deepseek_presets() {
  ModelConfig lite = deepseek_v2_facts();
  lite.layers = 27;
  lite.hidden = 2048;
  lite.ffn_hidden = 10944;
  lite.heads = lite.groups = 16;
  lite.head_size = lite.latent->head_size();
  lite.vocabulary = 102400;
  lite.max_positions = 163840;
  lite.rotary_scaling = {.kind = RotaryScaling::Kind::kYarn,
                         .factor = 40,
                         .original_positions = 4096,
                         .numerator = 0.707,
                         .denominator = 0.707};
  lite.experts->ffn_hidden = 1408;
  lite.experts->shared_ffn_hidden = 2 * 1408;
  lite.experts->dense_layers = {0};
  // V3 without the layers that predict further tokens.
  ModelConfig large = deepseek_v3_facts();
  large.head_size = lite.head_size;
  large.max_positions = lite.max_positions;
  large.rotary_scaling = lite.rotary_scaling;
  large.layers = 61;
  large.hidden = 7168;
  large.ffn_hidden = 18432;
  large.heads = large.groups = 128;
  large.latent->query_rank = 1536;
  large.vocabulary = 129280;
  large.rotary_scaling.numerator = large.rotary_scaling.denominator = 1;
  large.experts = {.experts = large.experts->experts,
                   .choices = large.experts->choices,
                   .score = large.experts->score,
                   .weight_factor = 2.5,
                   .choice_bias = true,
                   .bias_rate = 1e-3,
                   .groups = {.count = 8, .chosen = 4, .largest = 2},
                   .ffn_hidden = 2048,
                   .shared_ffn_hidden = 2048,
                   .dense_layers = {0, 1, 2}};
  return {{"deepseek-v2-lite", lite}, {"deepseek-v3", large}};
}

std::vector<Preset> gpt_oss_presets() {
  return {gpt_oss("gpt-oss-20b", 24, 32), gpt_oss("gpt-oss-120b", 36, 128)};
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
  leave_out_mlps(config);
  return {{"mamba2-130m", config}};
}

}  // namespace piton
