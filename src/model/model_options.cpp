// ModelOptions: the model that flags describe, and the flags of a model.
#include <fmt/ranges.h>

#include "base/options/option_range.h"
#include "model/config.h"
#include "model/families.h"

namespace piton {
namespace {

// Checks given sizes before other sizes are derived from them.
void check_given(const ModelOptions& options) {
  const auto check = [](const char* flag, const std::optional<std::int64_t>& given) {
    if (given) check_range(flag, *given, 1, kLargestSize);
  };
  check("--num-layers", options.layers);
  check("--hidden-size", options.hidden);
  check("--ffn-hidden-size", options.ffn_hidden);
  check("--moe-ffn-hidden-size", options.mlp.expert_ffn_hidden);
  check("--moe-shared-expert-intermediate-size", options.mlp.shared_ffn_hidden);
  check("--num-attention-heads", options.heads);
  check("--num-query-groups", options.groups);
  check("--kv-channels", options.head_size);
  check("--vocab-size", options.vocabulary);
  check("--max-position-embeddings", options.max_positions);
}

// The preset, or the facts of the family.
ModelConfig named_model(const ModelOptions& options) {
  if (options.model.empty()) {
    if (!options.family && !(options.layers && options.hidden && options.heads)) {
      throw Error(
          Fault::kUsage,
          "--model: no model is named; wanted a preset ({}), or --num-layers, --hidden-size and "
          "--num-attention-heads, of --model-family gpt2 or llama",
          fmt::join(preset_names(), ", "));
    }
    // Megatron-LM's default decoder is GPT-2's; flags change it to others.
    return family_facts(options.family.value_or("gpt2"));
  }
  const ModelConfig config = preset(options.model);
  if (options.family && *options.family != config.family) {
    throw Error(Fault::kUsage,
                "--model-family: got {}, but --model {} is of family {}; leave one of them out",
                *options.family, options.model, config.family);
  }
  return config;
}

template <typename Field, typename Given>
void set(Field& field, const Given& given) {
  if (given) field = *given;
}

// Sets width and heads, and derives the sizes that depend on them and are not given. A preset's own
// values given once more change nothing.
void set_sizes(const ModelOptions& options, ModelConfig& config) {
  const bool another_width = options.hidden.value_or(config.hidden) != config.hidden;
  const bool other_heads = options.heads.value_or(config.heads) != config.heads;
  if (!another_width && !other_heads && !options.model.empty()) return;
  set(config.hidden, options.hidden);
  const std::int64_t old_heads = config.heads;
  set(config.heads, options.heads);
  const bool latent = config.latent || options.attention.latent.latent;
  if (config.heads > 0 && config.hidden % config.heads != 0 && !options.head_size && !latent) {
    throw Error(Fault::kUsage,
                "--num-attention-heads: got {}, wanted a divisor of --hidden-size, which is {} "
                "(or give --kv-channels)",
                config.heads, config.hidden);
  }
  if (config.heads > 0) config.head_size = config.hidden / config.heads;
  if (options.heads && !options.groups && config.groups == old_heads) config.groups = config.heads;
  if (config.groups == 0) config.groups = config.heads;
  if (another_width && !options.ffn_hidden && !options.mlp.expert_ffn_hidden) {
    // 4 h, or for gated MLPs 2/3 of it rounded down to a multiple of 64 (Megatron's rule).
    config.ffn_hidden = config.gated && !options.mlp.is_x_model ? config.hidden * 8 / 3 / 64 * 64
                                                                : 4 * config.hidden;
  }
}

void set_ffn(const ModelOptions& options, ModelConfig& config) {
  set(config.ffn_hidden, options.ffn_hidden);
  if (config.experts) {
    ExpertFacts& facts = *config.experts;
    set(facts.ffn_hidden, options.mlp.expert_ffn_hidden);
    // Where all layers have experts, theirs is the one width.
    if (facts.dense_layers.empty() && facts.ffn_hidden != 0) config.ffn_hidden = facts.ffn_hidden;
    if (facts.ffn_hidden == config.ffn_hidden) facts.ffn_hidden = 0;
    if (options.mlp.shared_experts)
      facts.shared_ffn_hidden = *options.mlp.shared_experts * config.expert_ffn_hidden();
  }
  if (!options.mlp.is_x_model) return;
  if (config.ffn_hidden % 2 != 0) {
    throw Error(Fault::kUsage,
                "--ffn-hidden-size: got {}, wanted an even number, since --is-x-model makes a "
                "gate of half of it",
                config.ffn_hidden);
  }
  config.ffn_hidden /= 2;
}

void set_vocabulary(const ModelOptions& options, std::optional<std::int64_t> of_tokenizer,
                    ModelConfig& config) {
  set(config.vocabulary, of_tokenizer);
  if (options.vocabulary && of_tokenizer && *options.vocabulary < *of_tokenizer) {
    throw Error(
        Fault::kUsage,
        "--vocab-size: got {}, but the tokenizer has {} ids; leave the flag out or raise it",
        *options.vocabulary, *of_tokenizer);
  }
  set(config.vocabulary, options.vocabulary);
}

}  // namespace

ModelConfig ModelOptions::resolve(std::optional<std::int64_t> tokenizer_vocabulary) const {
  ModelConfig config = named_model(*this);
  check_given(*this);
  set(config.layers, layers);
  attention.state_space.set_layers(config);
  mlp.apply(config);
  attention.state_space.set_experts(config);
  set_sizes(*this, config);
  set_ffn(*this, config);
  set(config.groups, groups);
  set(config.head_size, head_size);
  attention.latent.apply(head_size, groups, config);
  set(config.max_positions, max_positions);
  attention.apply(config);
  if (normalization) config.norm = *normalization == "RMSNorm" ? NormKind::kRms : NormKind::kLayer;
  if (disable_bias_linear) config.biases = config.output_bias = config.qkv_biases = false;
  if (untied && tied) {
    throw Error(Fault::kUsage,
                "--tie-embeddings-and-output-weights: contradicts "
                "--untie-embeddings-and-output-weights; leave one of them out");
  }
  if (untied) config.tied = false;
  if (tied) config.tied = true;
  labels.apply(config);
  if (tied) config.tied = true;
  set(config.norm_eps, norm_eps);
  rotary.apply(config);
  set(config.hidden_dropout, hidden_dropout);
  set(config.attention_dropout, attention_dropout);
  set(config.init_deviation, init_deviation);
  if (embedding_deviation) config.embedding_deviation = embedding_deviation;
  if (xavier_weights) config.xavier_weights = true;
  set_vocabulary(*this, tokenizer_vocabulary, config);
  if (qkv_biases) config.qkv_biases = true;
  if (output_bias) config.output_bias = true;
  if (mlp_biases) config.biases = true;
  if (head_bias) config.head_bias = true;
  if (embedding_norm) config.embedding_norm = true;
  if (normalized_head) config.normalized_head = true;
  if (gains_from_one) config.gains_from_one = true;
  if (end_norms) config.end_norms = true;
  if (parallel_residual) config.parallel_residual = true;
  if (single_norm) config.single_norm = true;
  if (no_start_norm) config.start_norms = false;
  if (joint_head_norms) config.joint_head_norms = true;
  if (norms_after_rotary) config.norms_after_rotary = true;
  if (no_norm_bias) config.norm_biases = false;
  if (no_norm_gain) config.norm_gains = false;
  if (scaled_embedding) config.scaled_embedding = true;
  set(config.embedding_factor, embedding_factor);
  set(config.branch_factor, branch_factor);
  set(config.logit_divisor, logit_divisor);
  set(config.logit_soft_cap, logit_soft_cap);
  if (head_norms) config.head_norms = true;
  set(config.mtp_layers, mtp_layers);
  set(config.mtp_loss_factor, mtp_loss_factor);
  encoder.apply(config);
  if (config.encoder) labels.apply(config);  // without the heads of its flags
  encoder_decoder.apply(config, layers);
  if (bf16 && fp16) {
    throw Error(Fault::kUsage, "--fp16: contradicts --bf16; leave one of them out");
  }
  if (bf16) config.dtype = DType::kBF16;
  if (fp16) config.dtype = DType::kF16;
  if (fp32_residual && !bf16 && !fp16) {
    throw Error(Fault::kUsage,
                "--fp32-residual-connection: all is in fp32 without --bf16 or --fp16; give one of "
                "them too, or leave it out");
  }
  config.fp32_residual = fp32_residual;
  config.check();
  return config;
}

std::string ModelOptions::changes_of_preset(const ModelConfig& config) const {
  if (model.empty()) return "";
  const ModelConfig named = preset(model);
  std::vector<std::string> changed;
  std::vector<std::string> derived;
  const auto compare = [&](const char* flag, const std::optional<std::int64_t>& given,
                           std::int64_t was, std::int64_t is) {
    if (was == is) return;
    (given ? changed : derived).push_back(fmt::format("{} {} (was {})", flag, is, was));
  };
  compare("--num-layers", layers, named.layers, config.layers);
  compare("--hidden-size", hidden, named.hidden, config.hidden);
  compare("--ffn-hidden-size", ffn_hidden, named.ffn_hidden, config.ffn_hidden);
  compare("--num-attention-heads", heads, named.heads, config.heads);
  compare("--num-query-groups", groups, named.groups, config.groups);
  compare("--kv-channels", head_size, named.head_size, config.head_size);
  compare("--num-experts", mlp.experts, named.experts ? named.experts->experts : 0,
          config.experts ? config.experts->experts : 0);
  compare("--max-position-embeddings", max_positions, named.max_positions, config.max_positions);
  if (changed.empty() && derived.empty()) return "";
  return fmt::format(
      "--model {} with {}{}", model,
      changed.empty() ? "another MLP" : fmt::to_string(fmt::join(changed, ", ")),
      derived.empty() ? "" : fmt::format("; so {} too, unless given", fmt::join(derived, ", ")));
}

void ModelOptions::settle(const ModelConfig& config) {
  family = config.family;
  layers = config.layers;
  hidden = config.hidden;
  ffn_hidden = mlp.is_x_model ? 2 * config.ffn_hidden : config.ffn_hidden;
  heads = config.heads;
  groups = config.groups;
  head_size = config.head_size;
  vocabulary = config.vocabulary;
  max_positions = config.max_positions;
  norm_eps = config.norm_eps;
  hidden_dropout = config.hidden_dropout;
  attention_dropout = config.attention_dropout;
  init_deviation = config.init_deviation;
  embedding_deviation = config.embedding_deviation;
  xavier_weights = config.xavier_weights;
  normalization = config.norm == NormKind::kRms ? "RMSNorm" : "LayerNorm";
  disable_bias_linear = !config.biases;
  qkv_biases = config.qkv_biases;
  output_bias = config.output_bias;
  mlp_biases = config.biases;
  head_bias = config.head_bias;
  embedding_norm = config.embedding_norm;
  normalized_head = config.normalized_head;
  labels = LabelOptions::of(config);
  gains_from_one = config.gains_from_one;
  end_norms = config.end_norms;
  parallel_residual = config.parallel_residual;
  single_norm = config.single_norm;
  no_start_norm = !config.start_norms;
  joint_head_norms = config.joint_head_norms;
  norms_after_rotary = config.norms_after_rotary;
  no_norm_bias = !config.norm_biases;
  no_norm_gain = !config.norm_gains;
  scaled_embedding = config.scaled_embedding;
  const ModelConfig facts = family_facts(config.family);
  const auto settle_factor = [&](std::optional<double>& option, double ModelConfig::*factor) {
    if (config.*factor != facts.*factor) option = config.*factor;
  };
  settle_factor(embedding_factor, &ModelConfig::embedding_factor);
  settle_factor(branch_factor, &ModelConfig::branch_factor);
  settle_factor(logit_divisor, &ModelConfig::logit_divisor);
  if (config.logit_soft_cap > 0) logit_soft_cap = config.logit_soft_cap;
  head_norms = config.head_norms;
  if (config.mtp_layers > 0) {
    mtp_layers = config.mtp_layers;
    mtp_loss_factor = config.mtp_loss_factor;
  }
  untied = !config.tied;
  attention.state_space = StateSpaceOptions::of(config);
  encoder = EncoderOptions::of(config);
  encoder_decoder = EncoderDecoderOptions::of(config);
}

ModelOptions ModelOptions::of(const ModelConfig& config) {
  ModelOptions options;
  options.settle(config);
  options.tied = config.tied && !family_facts(config.family).tied;
  options.attention = AttentionOptions::of(config);
  options.rotary = RotaryOptions::of(config);
  options.mlp = MlpOptions::of(config);
  return options;
}

bool ModelOptions::describes_model() const {
  ModelOptions options = *this;
  options.vocabulary.reset();
  ModelOptions none;
  OptionSet given;
  OptionSet empty;
  given.add("Model", options);
  empty.add("Model", none);
  return given.to_toml() != empty.to_toml();
}

}  // namespace piton
