#include "model/attention_options.h"

#include <tuple>

#include "base/options/option_range.h"
#include "model/config.h"
#include "model/families.h"

namespace piton {
namespace {

constexpr std::int64_t kTriangleBlock = 512;  // the value of Megatron and MindSpeed

PositionKind position_kind(const std::string& name) {
  if (name == "rope" || name == "rotary") return PositionKind::kRotary;
  if (name == "alibi") return PositionKind::kAlibi;
  if (name == "relative") return PositionKind::kRelative;
  if (name == "none") return PositionKind::kNone;
  return PositionKind::kLearned;
}

SoftmaxKind softmax_kind(const std::string& name) {
  if (name == "off-by-one") return SoftmaxKind::kOffByOne;
  return name == "learnable" ? SoftmaxKind::kLearnable : SoftmaxKind::kVanilla;
}

std::string softmax_name(SoftmaxKind kind) {
  switch (kind) {
    case SoftmaxKind::kVanilla:
      break;
    case SoftmaxKind::kOffByOne:
      return "off-by-one";
    case SoftmaxKind::kLearnable:
      return "learnable";
  }
  return "vanilla";
}

void set_alibi(const AttentionOptions& options, ModelConfig& config) {
  if (!options.alibi_type) return;
  const std::int64_t type = *options.alibi_type;
  if (type != 0 && type != 2 && type != 3) {
    throw Error(Fault::kUsage, "--alibi-fusion-attn-type: got {}, wanted 0, 2 or 3{}", type,
                type == 1
                    ? " (1 multiplies the bias by the scale of scores too, which makes it too "
                      "small; 0 adds it to scaled scores)"
                    : "");
  }
  if (config.positions != PositionKind::kAlibi) {
    throw Error(Fault::kUsage,
                "--alibi-fusion-attn-type: is for --position-embedding-type alibi; add that or "
                "leave it out");
  }
  // Keys that a causal mask shows are not after the query: then 0 and 2 are the same.
  config.alibi = type == 3                           ? AlibiKind::kRootOfDistance
                 : type == 2 && options.has_prefix() ? AlibiKind::kDistance
                                                     : AlibiKind::kDifference;
}

// Factors, cap and softmax of scores.
void set_scores(const AttentionOptions& options, ModelConfig& config) {
  if (options.query_scalar && options.score_factor) {
    throw Error(
        Fault::kUsage,
        "--attention-multiplier: --query-pre-attn-scalar scales the scores too; leave one of "
        "them out");
  }
  if (options.query_scalar) config.query_scalar = *options.query_scalar;
  if (options.score_factor) config.score_factor = *options.score_factor;
  if (options.soft_cap) config.attention_soft_cap = *options.soft_cap;
  if (options.softmax) config.softmax = softmax_kind(*options.softmax);
}

// Which layers have no window, after it is set.
void set_full_layers(const AttentionOptions& options, ModelConfig& config) {
  if (options.full_attention_every) {
    check_range("--window-attn-skip-freq", *options.full_attention_every, 1, kLargestSize);
    if (!config.window_before) {
      throw Error(Fault::kUsage,
                  "--window-attn-skip-freq: needs layers with a window, and --pre-tockens is not "
                  "given; give both");
    }
    config.full_attention_every = *options.full_attention_every;
  }
  if (options.full_attention_first) {
    constexpr const char* kFlag = "--window-attn-skip-first";
    if (config.full_attention_every == 0)
      throw Error(Fault::kUsage, "{}: needs --window-attn-skip-freq, which is not given", kFlag);
    check_range(kFlag, *options.full_attention_first, 1, config.full_attention_every);
    config.full_attention_first = *options.full_attention_first % config.full_attention_every;
  }
}

}  // namespace

void AttentionOptions::apply(ModelConfig& config) const {
  if (positions) config.positions = position_kind(*positions);
  if (sparse_mode < 0 || sparse_mode > 8)
    throw Error(Fault::kUsage, "--sparse-mode: got {}, wanted 0 to 8", sparse_mode);
  if (sparse_mode >= 5 && use_flash_attn) {
    throw Error(
        Fault::kUsage,
        "--sparse-mode: got {}, wanted 0 or 2 with --use-flash-attn, as in MindSpeed; leave "
        "--use-flash-attn out: attention is computed in tiles without it too",
        sparse_mode);
  }
  set_alibi(*this, config);
  config.prefix = has_prefix();
  if (window_after) check_range("--next-tockens", *window_after, -kLargestSize);
  if (triangle_block_size) {
    check_range("--triangle-block-size", *triangle_block_size, 1, kLargestSize);
  }
  if (sparse_mode >= 1 && sparse_mode != 4 && (window_before || window_after)) {
    throw Error(Fault::kUsage,
                "--sparse-mode: mode {} has no window, and {} is given; leave one of them out, or "
                "take mode 0",
                sparse_mode, window_before ? "--pre-tockens" : "--next-tockens");
  }
  if (sparse_mode == 4 && !(window_before && window_after)) {
    throw Error(
        Fault::kUsage,
        "--sparse-mode: mode 4 is the band between --pre-tockens and --next-tockens; give both");
  }
  if (sparse_mode == 4 && *window_after > 0) {
    throw Error(Fault::kUsage,
                "--next-tockens: got {}, wanted at most 0 with --sparse-mode 4, which has no other "
                "mask: tokens would see the tokens that they predict",
                *window_after);
  }
  if (window_before && *window_before < 0) {
    throw Error(Fault::kUsage,
                "--pre-tockens: got {}, wanted 0 or more: otherwise only keys after a token would "
                "be visible, and attention is causal",
                *window_before);
  }
  if (window_after && *window_after < 0 &&
      window_before.value_or(config.max_positions) < -*window_after) {
    throw Error(Fault::kUsage,
                "--next-tockens: got {}, wanted {} or more: the window ends before it begins",
                *window_after, -window_before.value_or(config.max_positions));
  }
  if (triangle_attn && use_flash_attn) {
    throw Error(Fault::kUsage,
                "--triangle-attn: cannot be combined with --use-flash-attn: they are two forms of "
                "attention; leave one of them out");
  }
  if (triangle_block_size && !triangle_attn) {
    throw Error(Fault::kUsage,
                "--triangle-block-size: needs --triangle-attn, which is not given; give both");
  }
  config.attention_block = triangle_attn ? triangle_block_size.value_or(kTriangleBlock) : 0;
  if (window_before) config.window_before = window_before;
  if (sparse_mode >= 1 && sparse_mode != 4) {  // also where the preset has one
    config.window_before.reset();
    config.full_attention_every = config.full_attention_first = 0;
  }
  set_full_layers(*this, config);
  set_scores(*this, config);
  delta.apply(config);
  state_space.apply(config);
  config.window_after = window_after;
}

AttentionOptions AttentionOptions::of(const ModelConfig& config) {
  AttentionOptions options;
  switch (config.positions) {
    case PositionKind::kLearned:
      options.positions = "learned_absolute";
      break;
    case PositionKind::kRotary:
      options.positions = "rope";
      break;
    case PositionKind::kAlibi:
      options.positions = "alibi";
      break;
    case PositionKind::kRelative:
      options.positions = "relative";
      break;
    case PositionKind::kNone:
      options.positions = "none";
      break;
  }
  options.window_before = config.window_before;
  options.window_after = config.window_after;
  if (config.full_attention_every > 0) options.full_attention_every = config.full_attention_every;
  if (config.full_attention_first > 0) options.full_attention_first = config.full_attention_first;
  options.query_scalar = config.query_scalar;
  options.score_factor = config.score_factor;
  if (config.prefix) options.sparse_mode = 5;
  if (config.alibi != AlibiKind::kDifference)
    options.alibi_type = config.alibi == AlibiKind::kDistance ? 2 : 3;
  if (config.attention_soft_cap > 0) options.soft_cap = config.attention_soft_cap;
  if (config.softmax != family_facts(config.family).softmax)
    options.softmax = softmax_name(config.softmax);
  options.latent = LatentOptions::of(config);
  options.delta = DeltaOptions::of(config);
  options.state_space = StateSpaceOptions::of(config);
  return options;
}

void LatentOptions::apply(const std::optional<std::int64_t>& head_size,
                          const std::optional<std::int64_t>& groups, ModelConfig& config) const {
  const std::pair<const char*, const std::optional<std::int64_t>*> sizes[] = {
      {"--q-lora-rank", &query_rank},
      {"--kv-lora-rank", &rank},
      {"--qk-head-dim", &own},
      {"--qk-pos-emb-head-dim", &turned},
      {"--v-head-dim", &value}};
  if (!latent && !config.latent) {
    const auto refuse = [](bool given, const char* flag) {
      if (given) {
        throw Error(Fault::kUsage,
                    "{}: is for --multi-latent-attention; give it too, or leave it out", flag);
      }
    };
    for (const auto& [flag, given] : sizes) refuse(given->has_value(), flag);
    refuse(norm_eps.has_value(), "--latent-norm-epsilon");
    refuse(halves, "--latent-rotary-halves");
    return;
  }
  for (const auto& [flag, given] : sizes)
    if (*given) check_range(flag, **given, 1, kLargestSize);
  if (!config.latent && !rank) {
    throw Error(Fault::kUsage,
                "--multi-latent-attention: needs the width of the rows that keys and values are "
                "computed from; give --kv-lora-rank too, such as 512");
  }
  LatentFacts facts = config.latent.value_or(LatentFacts{});
  if (query_rank) facts.query_rank = *query_rank;
  if (rank) facts.rank = *rank;
  if (own) facts.own = *own;
  if (turned) facts.turned = *turned;
  if (value) facts.value = *value;
  if (norm_eps) check_positive("--latent-norm-epsilon", facts.norm_eps = *norm_eps);
  if (!config.latent) config.rotary_pairs = true;
  if (halves) config.rotary_pairs = false;
  config.latent = facts;
  config.head_size = facts.head_size();
  config.groups = config.heads;
  config.qkv_biases = false;
  if (head_size && *head_size != config.head_size) {
    throw Error(Fault::kUsage,
                "--kv-channels: got {}, wanted {} with --multi-latent-attention, the sum of "
                "--qk-head-dim and --qk-pos-emb-head-dim; leave it out",
                *head_size, config.head_size);
  }
  if (groups && *groups != config.heads) {
    throw Error(Fault::kUsage,
                "--num-query-groups: got {}, wanted {}: with --multi-latent-attention each head "
                "has its key; leave it out",
                *groups, config.heads);
  }
}

LatentOptions LatentOptions::of(const ModelConfig& config) {
  LatentOptions options;
  if (!config.latent) return options;
  const LatentFacts& facts = *config.latent;
  options.latent = true;
  if (facts.query_rank != 0) options.query_rank = facts.query_rank;
  options.rank = facts.rank;
  options.own = facts.own;
  options.turned = facts.turned;
  options.value = facts.value;
  if (facts.norm_eps != 0) options.norm_eps = facts.norm_eps;
  options.halves = !config.rotary_pairs;
  return options;
}

void check_latent(const ModelConfig& config) {
  if (!config.latent) return;
  const LatentFacts& facts = *config.latent;
  if (facts.turned % 2 != 0) {
    throw Error(Fault::kUsage,
                "--qk-pos-emb-head-dim: got {}, wanted an even number, because rotary positions "
                "rotate pairs of channels",
                facts.turned);
  }
  if (facts.value > facts.head_size()) {
    throw Error(Fault::kUsage,
                "--v-head-dim: got {}, wanted at most {}, the sum of --qk-head-dim and "
                "--qk-pos-emb-head-dim",
                facts.value, facts.head_size());
  }
  const auto refuse = [](bool given, const char* flag, const char* why) {
    if (given) throw Error(Fault::kUsage, "{}: not with --multi-latent-attention, {}", flag, why);
  };
  refuse(config.encoder || config.encoder_decoder, "--model-family",
         "which is for decoders; take another family, such as llama");
  refuse(config.positions != PositionKind::kRotary, "--position-embedding-type",
         "whose positions are rotary; give rope");
  refuse(config.qkv_biases, "--add-qkv-bias",
         "whose queries, keys and values have none; leave it out");
  refuse(config.norm != NormKind::kRms, "--normalization", "whose norms are RMSNorm; give that");
  refuse(config.gains_from_one, "--apply-layernorm-1p",
         "whose norms have plain gains; leave it out");
  refuse(config.query_scalar.has_value(), "--query-pre-attn-scalar",
         "which divides scores by the root of a head's channels; leave it out");
  refuse(config.score_factor.has_value(), "--attention-multiplier",
         "which divides scores by the root of a head's channels; leave it out");
  refuse(config.joint_head_norms, "--qk-layernorm-joint",
         "whose norms are of latents; leave it out");
  refuse(config.softmax == SoftmaxKind::kLearnable, "--softmax-type learnable",
         "whose heads learn no score; give vanilla or off-by-one");
  refuse(!config.start_norms, "--no-pre-norm", "whose branches begin with a norm; leave it out");
  refuse(config.rotary_share != 1, "--rotary-percent",
         "where --qk-pos-emb-head-dim says which channels turn; leave it out");
}

void DeltaOptions::apply(ModelConfig& config) const {
  if (output_gate) config.output_gate = true;
  if (attention_every) {
    check_range("--linear-attention-freq", *attention_every, 1, kLargestSize);
    if (!config.delta) config.delta.emplace();
    config.delta->attention_every = *attention_every;
  }
  const std::tuple<const char*, std::optional<std::int64_t>, std::int64_t DeltaFacts::*> sizes[] = {
      {"--linear-num-key-heads", key_heads, &DeltaFacts::key_heads},
      {"--linear-num-value-heads", value_heads, &DeltaFacts::value_heads},
      {"--linear-key-head-dim", key_size, &DeltaFacts::key_size},
      {"--linear-value-head-dim", value_size, &DeltaFacts::value_size},
      {"--linear-conv-kernel-dim", width, &DeltaFacts::width}};
  for (const auto& [flag, given, field] : sizes) {
    if (!given) continue;
    if (!config.delta) {
      throw Error(Fault::kUsage,
                  "{}: is for layers with the gated delta rule; give --linear-attention-freq too, "
                  "or leave it out",
                  flag);
    }
    check_range(flag, *given, 1, kLargestSize);
    (*config.delta).*field = *given;
  }
}

DeltaOptions DeltaOptions::of(const ModelConfig& config) {
  DeltaOptions options;
  options.output_gate = config.output_gate;
  if (!config.delta) return options;
  const DeltaFacts& facts = *config.delta;
  options.attention_every = facts.attention_every;
  options.key_heads = facts.key_heads;
  options.value_heads = facts.value_heads;
  options.key_size = facts.key_size;
  options.value_size = facts.value_size;
  options.width = facts.width;
  return options;
}

void check_delta(const ModelConfig& config) {
  const auto refuse = [](bool given, const char* flag, const char* why) {
    if (given) throw Error(Fault::kUsage, "{}: {}", flag, why);
  };
  const bool encoder = config.encoder || config.encoder_decoder;
  refuse(config.output_gate && (encoder || config.latent), "--attention-output-gate",
         "is for decoders without --multi-latent-attention; leave it out");
  if (!config.delta) return;
  const DeltaFacts& facts = *config.delta;
  if (facts.value_heads % facts.key_heads != 0) {
    throw Error(Fault::kUsage,
                "--linear-num-value-heads: got {}, wanted a multiple of --linear-num-key-heads, "
                "which is {}",
                facts.value_heads, facts.key_heads);
  }
  constexpr std::int64_t kWidest = 255;
  check_range("--linear-conv-kernel-dim", facts.width, 1, kWidest);
  constexpr const char* kFlag = "--linear-attention-freq";
  refuse(encoder, kFlag, "is for decoders; leave it out");
  refuse(config.latent.has_value(), kFlag,
         "is not with --multi-latent-attention; leave one of them out");
  refuse(config.prefix, kFlag,
         "reads the tokens of a prompt in order, and --sparse-mode 5 and 6 show later ones; leave "
         "one of them out");
  refuse(config.end_norms, "--post-norm",
         "is not for layers with the gated delta rule; leave it out");
}

}  // namespace piton
