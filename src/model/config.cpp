#include "model/config.h"

#include <algorithm>
#include <cmath>

#include "base/options/option_range.h"
#include "model/families.h"

namespace piton {
namespace {

// Checks that the number of parameters, and of the bytes that training holds for them, can be
// counted in 64 bits.
void check_size(const ModelConfig& c) {
  const auto of = [](std::int64_t value) { return static_cast<double>(value); };
  // Of MLPs and experts of a layer, whether it has the one or the other.
  double widths = of(c.ffn_hidden);
  if (c.experts) {
    widths += of(std::max<std::int64_t>(c.experts->experts, 1)) * of(c.expert_ffn_hidden()) +
              of(c.experts->shared_ffn_hidden);
  }
  double block =
      of(c.hidden) * of(c.head_size) * 2 * (of(c.heads) + of(c.groups)) + 3 * of(c.hidden) * widths;
  if (c.latent) {
    block += (of(c.latent->query_rank) + of(c.latent->rank)) *
             (of(c.hidden) + 2 * of(c.heads) * of(c.head_size));
  }
  const double all = of(c.layers) * block +
                     of(c.hidden) * (2 * of(c.vocabulary) + of(c.max_positions)) +
                     of(c.max_positions) * of(c.head_size);
  if (all < 0x1p56) return;
  throw Error(Fault::kUsage,
              "model: {:.2g} parameters, of {} layers, --hidden-size {}, --ffn-hidden-size {}, {} "
              "heads of {}, {} ids and {} positions: more than can be counted; lower what is too "
              "large",
              all, c.layers, c.hidden, c.ffn_hidden, c.heads, c.head_size, c.vocabulary,
              c.max_positions);
}

// Refuses what only decoders have, a stream in fp32 where there is none, and tables of distances in
// forms that take none.
void check_masks(const ModelConfig& c) {
  const auto refuse = [](bool given, const char* flag, const char* why) {
    if (given) throw Error(Fault::kUsage, "{}: {}; leave it out", flag, why);
  };
  if (c.encoder || c.encoder_decoder) {
    constexpr const char* kDecoders = "is for decoders, and the model is an encoder (bert, t5)";
    refuse(c.prefix, "--sparse-mode 5 and 6", kDecoders);
  }
  refuse(c.parallel_residual && (c.encoder || c.encoder_decoder), "--parallel-residual",
         "is for decoders, and the model is an encoder (bert, t5)");
  refuse(c.single_norm && !c.parallel_residual, "--single-norm",
         "is for blocks with --parallel-residual, which is not given");
  refuse(c.fp32_residual && c.encoder && c.encoder->post_norm, "--fp32-residual-connection",
         "widens the sum of all branches, and with --apply-residual-connection-post-layernorm (as "
         "BERT was published) there is none: each sum is normed at once");
  if (c.attention_block == 0) return;
  refuse(c.prefix, "--triangle-attn",
         "reads no key after a block of rows, and --sparse-mode 5 and 6 show later ones");
  refuse(c.alibi_table(), "--triangle-attn",
         "takes slopes of distances alone, and --alibi-fusion-attn-type gives a table of them");
}

}  // namespace

void ModelConfig::check() const {
  const auto positive = [](std::int64_t value, const char* flag) {
    if (value <= 0)
      throw Error(Fault::kUsage,
                  "{}: got {}, wanted a positive number (or name a preset with --model)", flag,
                  value);
    check_range(flag, value, 1, kLargestSize);
  };
  positive(layers, "--num-layers");
  positive(hidden, "--hidden-size");
  positive(ffn_hidden, "--ffn-hidden-size");
  positive(heads, "--num-attention-heads");
  positive(groups, "--num-query-groups");
  positive(head_size, "--kv-channels");
  positive(vocabulary, "--vocab-size");
  positive(max_positions, "--max-position-embeddings");
  check_size(*this);
  if (heads % groups != 0) {
    throw Error(
        Fault::kUsage,
        "--num-query-groups: got {}, wanted a divisor of --num-attention-heads, which is {}",
        groups, heads);
  }
  if (positions == PositionKind::kRotary && head_size % 2 != 0 && !latent) {
    throw Error(Fault::kUsage,
                "--kv-channels: got {}, wanted an even number, because rotary positions rotate "
                "pairs of channels",
                head_size);
  }
  const auto probability = [](double value, const char* flag) {
    if (!(value >= 0 && value < 1))
      throw Error(Fault::kUsage, "{}: got {}, wanted 0 <= p < 1", flag, value);
  };
  probability(hidden_dropout, "--hidden-dropout");
  probability(attention_dropout, "--attention-dropout");
  check_positive("--norm-epsilon", norm_eps);
  check_latent(*this);
  check_rotary(*this);
  if (normalized_head && tied) {
    throw Error(Fault::kUsage,
                "--normalized-head: needs a head with its own table; give "
                "--untie-embeddings-and-output-weights too");
  }
  if (query_scalar) check_positive("--query-pre-attn-scalar", *query_scalar);
  if (attention_soft_cap != 0) check_positive("--attn-logit-softcapping", attention_soft_cap);
  if (logit_soft_cap != 0) check_positive("--output-logit-softcapping", logit_soft_cap);
  if (local_rotary_base) {
    check_positive("--rotary-base-local", *local_rotary_base);
    if (!window_before) {
      throw Error(Fault::kUsage,
                  "--rotary-base-local: needs layers with a window, and --pre-tockens is not "
                  "given; give both");
    }
  }
  check_masks(*this);
  check_experts(*this);
  check_encoder(*this);
  check_encoder_decoder(*this);
  if (reward_head &&
      (encoder || encoder_decoder || tied || normalized_head || logit_soft_cap != 0)) {
    throw Error(Fault::kUsage,
                "--reward-head: is for decoders, without other options of the output head; "
                "leave {} out",
                encoder || encoder_decoder ? "it"
                : tied                     ? "--tie-embeddings-and-output-weights"
                : normalized_head          ? "--normalized-head"
                                           : "--output-logit-softcapping");
  }
  check_not_negative("--init-method-std", init_deviation);
}

namespace {

std::int64_t attention_matrices(const ModelConfig& c) {
  if (c.latent) {
    const LatentFacts& l = *c.latent;
    const std::int64_t queries = l.query_rank != 0
                                     ? l.query_rank * (c.hidden + c.heads * l.head_size())
                                     : c.hidden * c.heads * l.head_size();
    return queries + c.hidden * (l.rank + l.turned) + l.rank * c.heads * (l.own + l.value) +
           c.heads * l.value * c.hidden;
  }
  return c.hidden * c.head_size * (c.heads + 2 * c.groups) + c.heads * c.head_size * c.hidden;
}

std::int64_t mlp_matrices(const ModelConfig& c, std::int64_t width) {
  return (c.gated ? 3 : 2) * c.hidden * width;
}

// Elements of the matrices of a block without experts.
std::int64_t block_matrices(const ModelConfig& c) {
  return attention_matrices(c) + mlp_matrices(c, c.ffn_hidden);
}

// Of the matrices of all blocks, `experts` of them where there are experts: all, or those that a
// token is multiplied with.
std::int64_t matrices_of_blocks(const ModelConfig& c, std::int64_t experts) {
  if (!c.experts) return c.layers * block_matrices(c);
  const ExpertFacts& facts = *c.experts;
  const std::int64_t with_experts =
      attention_matrices(c) + c.hidden * (facts.experts + (facts.shared_gate ? 1 : 0)) +
      mlp_matrices(c, experts * c.expert_ffn_hidden() + facts.shared_ffn_hidden);
  return c.expert_layers() * with_experts + std::ssize(facts.dense_layers) * block_matrices(c);
}

// Of a model of an encoder and a decoder, per token of the encoder.
double encoder_decoder_flops(const ModelConfig& c, std::int64_t sequence,
                             std::int64_t decoder_sequence) {
  const auto of = [](std::int64_t value) { return static_cast<double>(value); };
  const double s = of(sequence);
  const double target = of(decoder_sequence > 0 ? decoder_sequence : sequence);
  const double encoders = of(c.encoder_decoder->encoder_layers);
  const double decoders = of(c.layers);
  // Keys and values of attention to the encoder are computed of its tokens, the rest of those of
  // the decoder.
  const double of_source = of(c.hidden * c.head_size * 2 * c.groups);
  const double source = encoders * of(block_matrices(c)) + decoders * of_source;
  const double own = decoders * (of(block_matrices(c) + attention_matrices(c)) - of_source) +
                     of(c.vocabulary * c.hidden);
  const double pairs = encoders * s * s + decoders * (target * target / 2 + target * s);
  return (2 * (source * s + own * target) + 4 * of(c.heads * c.head_size) * pairs) / s;
}

}  // namespace

std::int64_t ModelConfig::parameters() const {
  const std::int64_t norm_size = norm == NormKind::kLayer ? 2 * hidden : hidden;
  // Without matrices.
  std::int64_t block = ((end_norms ? 4 : 2) - (single_norm ? 1 : 0)) * norm_size;
  if (qkv_biases) block += head_size * (heads + 2 * groups);
  if (head_norms) block += latent ? latent->query_rank + latent->rank : 2 * head_size;
  if (output_bias) block += hidden;
  if (biases) block += (gated ? 2 : 1) * ffn_hidden + hidden;
  const std::int64_t head = reward_head ? 1 : tied ? 0 : vocabulary;
  std::int64_t ends = (vocabulary + head) * hidden + norm_size;
  if (positions == PositionKind::kLearned) ends += max_positions * hidden;
  if (embedding_norm) ends += norm_size;
  if (encoder) {
    // The head's linear, norm and bias; the table of types; pooler and head of pairs. The norm at
    // the end of the blocks is in post-norm form that of the embedding.
    ends += encoder->token_types * hidden;
    if (encoder->word_head) ends += hidden * hidden + hidden + norm_size + vocabulary;
    if (encoder->pair_head) ends += hidden * hidden + hidden + 2 * hidden + 2;
  }
  if (!encoder_decoder) {
    if (experts && experts->choice_bias) ends += expert_layers() * experts->experts;
    return matrices_of_blocks(*this, experts ? experts->experts : 1) + layers * block + ends;
  }
  block += block_matrices(*this);
  // Each layer of the decoder has another attention with its norm; the encoder has a norm at its
  // end.
  std::int64_t cross = attention_matrices(*this) + norm_size;
  if (qkv_biases) cross += head_size * (heads + 2 * groups);
  if (output_bias) cross += hidden;
  if (positions == PositionKind::kRelative) ends += 2 * encoder_decoder->buckets * heads;
  if (encoder_decoder->head_bias) ends += vocabulary;
  return (encoder_decoder->encoder_layers + layers) * block + layers * cross + ends + norm_size;
}

double ModelConfig::forward_flops_per_token(std::int64_t sequence, std::int64_t decoder_sequence,
                                            double labelled) const {
  if (encoder_decoder) return encoder_decoder_flops(*this, sequence, decoder_sequence);
  const auto of_head = static_cast<double>((reward_head ? 1 : vocabulary) * hidden +
                                           (encoder ? hidden * hidden : 0));
  const double products =
      2.0 * (static_cast<double>(matrices_of_blocks(*this, experts ? experts->choices : 1)) +
             (encoder ? labelled : 1) * of_head);
  // Two products of 2 d FLOPs (of latent attention: of those of keys and of values) for each
  // visible key. On average a causal query sees half of the sequence; with a window of w keys, w of
  // them from position w on.
  const auto s = static_cast<double>(sequence);
  double pairs = 0;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::optional<std::int64_t> window = window_of(layer);
    const double w = window ? std::min(static_cast<double>(*window) + 1, s) : s;
    pairs += w - w * w / (2 * s);
  }
  if (encoder) {
    pairs *= 2;  // every token sees all
  }
  const std::int64_t channels = head_size + (latent ? latent->value : head_size);
  return products + 2.0 * static_cast<double>(heads * channels) * pairs;
}

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
  mlp.apply(config);
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
  if (reward_head) {
    config.reward_head = true;
    if (!tied) config.tied = false;
  }
  set(config.norm_eps, norm_eps);
  rotary.apply(config);
  set(config.hidden_dropout, hidden_dropout);
  set(config.attention_dropout, attention_dropout);
  set(config.init_deviation, init_deviation);
  if (xavier_weights) config.xavier_weights = true;
  set_vocabulary(*this, tokenizer_vocabulary, config);
  if (qkv_biases) config.qkv_biases = true;
  if (output_bias) config.output_bias = true;
  if (mlp_biases) config.biases = true;
  if (embedding_norm) config.embedding_norm = true;
  if (normalized_head) config.normalized_head = true;
  if (gains_from_one) config.gains_from_one = true;
  if (end_norms) config.end_norms = true;
  if (parallel_residual) config.parallel_residual = true;
  if (single_norm) config.single_norm = true;
  if (scaled_embedding) config.scaled_embedding = true;
  set(config.logit_soft_cap, logit_soft_cap);
  if (head_norms) config.head_norms = true;
  encoder.apply(config);
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
  xavier_weights = config.xavier_weights;
  normalization = config.norm == NormKind::kRms ? "RMSNorm" : "LayerNorm";
  disable_bias_linear = !config.biases;
  qkv_biases = config.qkv_biases;
  output_bias = config.output_bias;
  mlp_biases = config.biases;
  embedding_norm = config.embedding_norm;
  normalized_head = config.normalized_head;
  reward_head = config.reward_head;
  gains_from_one = config.gains_from_one;
  end_norms = config.end_norms;
  parallel_residual = config.parallel_residual;
  single_norm = config.single_norm;
  scaled_embedding = config.scaled_embedding;
  if (config.logit_soft_cap > 0) logit_soft_cap = config.logit_soft_cap;
  head_norms = config.head_norms;
  untied = !config.tied;
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
