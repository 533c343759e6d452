#include "model/config.h"

#include <algorithm>
#include <cmath>

#include "base/options/option_range.h"

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
  if (c.delta) {
    block += of(c.hidden) * (2 * of(c.delta->key_heads) * of(c.delta->key_size) +
                             3 * of(c.delta->value_heads) * of(c.delta->value_size));
  }
  if (c.state_space) {
    const StateSpaceFacts& facts = *c.state_space;
    block += of(c.hidden) * (3 * of(facts.heads) * of(facts.head_size) +
                             2 * of(facts.groups) * of(facts.state_size));
  }
  if (c.short_convolution) block += of(c.hidden) * 4 * of(c.hidden);
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

// Refuses layers that predict later tokens of models that have no later ones, or no head for them.
void check_later(const ModelConfig& c) {
  constexpr std::int64_t kMost = 8;  // of the sums of a pass (session/session.h)
  if (c.mtp_layers < 0 || c.mtp_layers > kMost)
    throw Error(Fault::kUsage, "--mtp-num-layers: got {}, wanted 0 to {}", c.mtp_layers, kMost);
  check_not_negative("--mtp-loss-scaling-factor", c.mtp_loss_factor);
  if (c.mtp_layers == 0) return;
  const auto refuse = [](bool given, const char* what) {
    if (given) throw Error(Fault::kUsage, "--mtp-num-layers: is not for {}; leave it out", what);
  };
  refuse(c.encoder || c.encoder_decoder, "a model with an encoder (bert, t5)");
  refuse(c.labels > 0, "a model with a head for labels or rewards");
  refuse(c.prefix, "masks that show later tokens (--sparse-mode 5 and 6)");
  refuse(c.embedding_norm, "a model with --embed-layernorm");
  refuse(c.has_states(c.layers - 1),
         "a model whose last layer, which they are like, has the gated delta rule "
         "(--linear-attention-freq), is of Mamba-2 or has a short convolution "
         "(--hybrid-override-pattern)");
  refuse(!c.has_mlp(c.layers - 1) || !c.has_mixer(c.layers - 1),
         "a model whose last layer, which they are like, has no attention or no MLP");
}

// Refuses factors that are no numbers above 0, and what encoders do not have.
void check_factors(const ModelConfig& c) {
  check_positive("--embedding-multiplier", c.embedding_factor);
  check_positive("--residual-multiplier", c.branch_factor);
  check_positive("--logits-scaling", c.logit_divisor);
  if (c.score_factor) check_positive("--attention-multiplier", *c.score_factor);
  const auto refuse = [](bool given, const char* flag, const char* why) {
    if (given) throw Error(Fault::kUsage, "{}: {}; leave it out", flag, why);
  };
  refuse(c.scaled_embedding && c.embedding_factor != 1, "--embedding-multiplier",
         "the embedding is multiplied by the root of its width (--input-embeds-norm)");
  refuse(c.score_factor && c.query_scalar, "--attention-multiplier",
         "--query-pre-attn-scalar scales the scores too");
  refuse(c.joint_head_norms && !c.head_norms, "--qk-layernorm-joint",
         "is of norms of heads, and --qk-layernorm is not given");
  refuse(c.norms_after_rotary && (!c.head_norms || c.joint_head_norms || c.latent),
         "--qk-layernorm-after-rope",
         "is of norms of each head, with --qk-layernorm, without --qk-layernorm-joint and "
         "--multi-latent-attention");
  refuse(!c.norm_biases && c.norm != NormKind::kLayer, "--no-norm-bias",
         "is for layer norms, and RMS norms have no biases");
  refuse(!c.norm_gains && c.norm == NormKind::kLayer && c.norm_biases, "--no-norm-gain",
         "norms with a bias have a gain, and --no-norm-bias is not given");
  refuse(!c.norm_gains && c.gains_from_one, "--no-norm-gain",
         "norms have gains, whose difference from 1 is stored (--apply-layernorm-1p)");
  refuse(!c.start_norms && !c.end_norms, "--no-pre-norm",
         "branches would have no norm, as --post-norm is not given");
  refuse(!c.start_norms && c.parallel_residual, "--no-pre-norm",
         "is not for blocks with --parallel-residual");
  refuse(c.head_bias && c.normalized_head, "--add-head-bias",
         "is not for a head whose rows are divided by their lengths (--normalized-head)");
  refuse(c.head_bias && c.logit_divisor != 1, "--add-head-bias",
         "is not for logits that are divided (--logits-scaling)");
  check_not_negative("--activation-func-clamp-value", c.gate_rule.bound);
  if (!std::isfinite(c.gate_rule.offset))
    throw Error(Fault::kUsage, "--glu-linear-offset: got {}, wanted a number", c.gate_rule.offset);
  refuse(c.gate_rule.given() && !c.gated,
         c.gate_rule.bound != 0 ? "--activation-func-clamp-value" : "--glu-linear-offset",
         "is for an activation with gates, such as --activation quick-geglu");
  if (!c.encoder && !c.encoder_decoder) return;
  constexpr const char* kDecoders = "is for decoders, and the model is an encoder (bert, t5)";
  refuse(c.embedding_factor != 1, "--embedding-multiplier", kDecoders);
  refuse(c.branch_factor != 1, "--residual-multiplier", kDecoders);
  refuse(c.logit_divisor != 1, "--logits-scaling", kDecoders);
  refuse(c.score_factor.has_value(), "--attention-multiplier", kDecoders);
  refuse(c.head_bias, "--add-head-bias", kDecoders);
  refuse(c.softmax != SoftmaxKind::kVanilla, "--softmax-type", kDecoders);
  refuse(!c.norm_biases, "--no-norm-bias", kDecoders);
  refuse(!c.norm_gains, "--no-norm-gain", kDecoders);
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
  if (vocabulary == 0)
    throw Error(Fault::kUsage,
                "--vocab-size: not given, and no tokenizer says it; name the tokenizer of the "
                "corpus (--tokenizer-name-or-path, --tokenizer-type), or give its number of "
                "tokens");
  positive(vocabulary, "--vocab-size");
  if (max_positions == 0)
    throw Error(Fault::kUsage,
                "--max-position-embeddings: not given; wanted the longest sequence in tokens, such "
                "as --seq-length");
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
  check_delta(*this);
  check_state_space(*this);
  check_short_convolution(*this);
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
  check_factors(*this);
  check_masks(*this);
  check_experts(*this);
  check_later(*this);
  check_encoder(*this);
  check_encoder_decoder(*this);
  check_labels(*this);
  check_not_negative("--init-method-std", init_deviation);
  if (embedding_deviation) check_not_negative("--embedding-init-method-std", *embedding_deviation);
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
  return c.hidden * c.head_size * ((c.output_gate ? 2 : 1) * c.heads + 2 * c.groups) +
         c.heads * c.head_size * c.hidden;
}

// What a layer with states has more elements in its matrices than one with attention.
std::int64_t more_in_state_layer(const ModelConfig& c) {
  if (c.state_space) {
    const StateSpaceFacts& s = *c.state_space;
    return c.hidden * (3 * s.values() + 2 * s.keys() + s.heads) - attention_matrices(c);
  }
  if (c.short_convolution) return 4 * c.hidden * c.hidden - attention_matrices(c);
  if (!c.delta) return 0;
  const DeltaFacts& d = *c.delta;
  const std::int64_t values = d.value_heads * d.value_size;
  return c.hidden * (2 * d.key_heads * d.key_size + 3 * values + 2 * d.value_heads) -
         attention_matrices(c);
}

// The parameters of a layer with states that are in no matrix: filters, gates and the norm.
std::int64_t rest_of_state_layer(const ModelConfig& c) {
  if (c.state_space) {
    const StateSpaceFacts& s = *c.state_space;
    return s.convolved() * (s.width + 1) + 3 * s.heads + s.values();
  }
  if (c.short_convolution)
    return c.hidden * (c.short_convolution->width + (c.short_convolution->biases ? 5 : 0));
  const DeltaFacts& d = *c.delta;
  return d.convolved() * d.width + 2 * d.value_heads + d.value_size;
}

std::int64_t mlp_matrices(const ModelConfig& c, std::int64_t width) {
  return (c.gated ? 3 : 2) * c.hidden * width;
}

// Elements of the matrices of a block without experts.
std::int64_t block_matrices(const ModelConfig& c) {
  return attention_matrices(c) + mlp_matrices(c, c.ffn_hidden);
}

// With the blocks that predict later tokens as more layers.
ModelConfig with_later_blocks(const ModelConfig& c) {
  ModelConfig all = c;
  all.mtp_layers = 0;
  for (std::int64_t layer = c.layers; layer < c.layers + c.mtp_layers; ++layer) {
    if (c.experts && !c.has_experts(c.layers - 1)) all.experts->dense_layers.push_back(layer);
    all.layers += 1;
  }
  return all;
}

// Of the matrices of all blocks, `states` of which have states; `experts` of them where there are
// experts: all, or those that a token is multiplied with.
std::int64_t matrices_of_blocks(const ModelConfig& c, std::int64_t experts, std::int64_t states) {
  const std::int64_t more = states * more_in_state_layer(c) -
                            std::ssize(c.bare_layers) * mlp_matrices(c, c.ffn_hidden) -
                            std::ssize(c.mlp_layers) * attention_matrices(c);
  if (!c.experts) return c.layers * block_matrices(c) + more;
  const ExpertFacts& facts = *c.experts;
  const std::int64_t with_experts =
      attention_matrices(c) + c.hidden * (facts.experts + (facts.shared_gate ? 1 : 0)) +
      mlp_matrices(c, experts * c.expert_ffn_hidden() + facts.shared_ffn_hidden);
  return c.expert_layers() * with_experts + std::ssize(facts.dense_layers) * block_matrices(c) +
         more;
}

std::int64_t mlp_biases(const ModelConfig& c, std::int64_t width) {
  return (c.gated ? 2 : 1) * width + c.hidden;
}

// Of all layers of a model that has them, with those of routers.
std::int64_t biases_of_mlps(const ModelConfig& c) {
  const std::int64_t bare = std::ssize(c.bare_layers);
  if (!c.experts) return (c.layers - bare) * mlp_biases(c, c.ffn_hidden);
  const ExpertFacts& facts = *c.experts;
  std::int64_t of_layer = facts.experts * (1 + mlp_biases(c, c.expert_ffn_hidden()));
  if (facts.shared_ffn_hidden != 0) of_layer += mlp_biases(c, facts.shared_ffn_hidden);
  return c.expert_layers() * of_layer +
         (std::ssize(facts.dense_layers) - bare) * mlp_biases(c, c.ffn_hidden);
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

// The parameters of a norm of the residual stream.
std::int64_t norm_size_of(const ModelConfig& c) {
  if (!c.norm_gains) return 0;
  return c.norm == NormKind::kLayer && c.norm_biases ? 2 * c.hidden : c.hidden;
}

// Of norms of heads, or of latents.
std::int64_t head_norms_size(const ModelConfig& c) {
  if (!c.head_norms) return 0;
  if (c.latent) return c.latent->query_rank + c.latent->rank;
  if (!c.norm_gains) return 0;
  return (c.joint_head_norms ? c.heads + c.groups : 2) * c.head_size;
}

// Of a model without layers that predict later tokens, `states` of whose layers have states.
std::int64_t parameters_of(const ModelConfig& c, std::int64_t states) {
  const std::int64_t norm_size = norm_size_of(c);
  // Without matrices.
  std::int64_t block = ((c.end_norms ? 2 : 0) + (!c.start_norms  ? 0
                                                 : c.single_norm ? 1
                                                                 : 2)) *
                       norm_size;
  std::int64_t attention = 0;
  if (c.qkv_biases) attention += c.head_size * ((c.output_gate ? 2 : 1) * c.heads + 2 * c.groups);
  attention += head_norms_size(c);
  if (c.output_bias) attention += c.hidden;
  if (c.softmax == SoftmaxKind::kLearnable) attention += c.heads;
  block += attention;
  const std::int64_t head = c.labels > 0 ? c.labels : c.tied ? 0 : c.vocabulary;
  std::int64_t ends = (c.vocabulary + head) * c.hidden + norm_size;
  if (c.positions == PositionKind::kLearned) ends += c.max_positions * c.hidden;
  if (c.embedding_norm) ends += norm_size;
  if (c.head_bias) ends += c.vocabulary;
  ends -=
      std::ssize(c.bare_layers) * norm_size + std::ssize(c.mlp_layers) * (norm_size + attention);
  if (states > 0) ends += states * (rest_of_state_layer(c) - attention);
  if (c.encoder) {
    // The head's linear, norm and bias; the table of types; pooler and head of pairs. The norm at
    // the end of the blocks is in post-norm form that of the embedding.
    ends += c.encoder->token_types * c.hidden;
    if (c.encoder->word_head) ends += c.hidden * c.hidden + c.hidden + norm_size + c.vocabulary;
    if (c.encoder->pair_head) ends += c.hidden * c.hidden + c.hidden + 2 * c.hidden + 2;
    if (c.labels > 0) ends += c.hidden * c.hidden + c.hidden + c.labels;
  }
  if (!c.encoder_decoder) {
    if (c.experts && c.experts->choice_bias) ends += c.expert_layers() * c.experts->experts;
    if (c.biases) ends += biases_of_mlps(c);
    return matrices_of_blocks(c, c.experts ? c.experts->experts : 1, states) + c.layers * block +
           ends;
  }
  block += block_matrices(c) + (c.biases ? mlp_biases(c, c.ffn_hidden) : 0);
  // Each layer of the decoder has another attention with its norm; the encoder has a norm at its
  // end.
  std::int64_t cross = attention_matrices(c) + norm_size;
  if (c.qkv_biases) cross += c.head_size * (c.heads + 2 * c.groups);
  if (c.output_bias) cross += c.hidden;
  if (c.positions == PositionKind::kRelative) ends += 2 * c.encoder_decoder->buckets * c.heads;
  if (c.encoder_decoder->head_bias) ends += c.vocabulary;
  return (c.encoder_decoder->encoder_layers + c.layers) * block + c.layers * cross + ends +
         norm_size;
}

}  // namespace

std::int64_t ModelConfig::parameters() const {
  return parameters_of(with_later_blocks(*this), state_layers()) +
         mtp_layers * (2 * hidden * hidden + 3 * norm_size_of(*this));
}

double ModelConfig::forward_flops_per_token(std::int64_t sequence, std::int64_t decoder_sequence,
                                            double labelled) const {
  if (encoder_decoder) return encoder_decoder_flops(*this, sequence, decoder_sequence);
  const auto of_head = static_cast<double>((labels > 0 ? labels : vocabulary) * hidden +
                                           (encoder ? hidden * hidden : 0));
  // Layers that predict later tokens multiply with the head too, and have a projection.
  const auto later = static_cast<double>(mtp_layers);
  const double of_projections = later * static_cast<double>(2 * hidden * hidden);
  const double products =
      2.0 * (static_cast<double>(matrices_of_blocks(
                 with_later_blocks(*this), experts ? experts->choices : 1, state_layers())) +
             of_projections + (encoder ? labelled : 1 + later) * of_head);
  // Two products of 2 d FLOPs (of latent attention: of those of keys and of values) for each
  // visible key. On average a causal query sees half of the sequence; with a window of w keys, w of
  // them from position w on.
  const auto s = static_cast<double>(sequence);
  double pairs = 0;
  for (std::int64_t layer = 0; layer < layers + mtp_layers; ++layer) {
    const std::int64_t like = std::min(layer, layers - 1);
    if (has_states(like) || !has_mixer(like)) continue;
    const std::optional<std::int64_t> window = window_of(like);
    const double w = window ? std::min(static_cast<double>(*window) + 1, s) : s;
    pairs += w - w * w / (2 * s);
  }
  if (encoder) {
    pairs *= 2;  // every token sees all
  }
  const std::int64_t channels = head_size + (latent ? latent->value : head_size);
  double of_states = 0;  // of the calls (kernels/recurrent)
  if (state_space) {
    const StateSpaceFacts& s = *state_space;
    of_states = static_cast<double>(state_layers()) *
                (2.0 * static_cast<double>(s.convolved() * s.width) +
                 4.0 * static_cast<double>(s.values() * s.state_size));
  }
  if (short_convolution) {
    of_states = static_cast<double>(state_layers()) * 2.0 *
                static_cast<double>(hidden * short_convolution->width);
  }
  if (delta) {
    of_states =
        static_cast<double>(state_layers()) *
        (2.0 * static_cast<double>(delta->convolved() * delta->width) +
         6.0 * static_cast<double>(delta->value_heads * delta->value_size * delta->key_size));
  }
  return products + of_states + 2.0 * static_cast<double>(heads * channels) * pairs;
}

}  // namespace piton
