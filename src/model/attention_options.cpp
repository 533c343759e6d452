#include "model/attention_options.h"

#include "base/options/option_range.h"
#include "model/config.h"

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
  config.window_before = window_before;
  if (full_attention_every) {
    check_range("--window-attn-skip-freq", *full_attention_every, 1, kLargestSize);
    if (!window_before) {
      throw Error(Fault::kUsage,
                  "--window-attn-skip-freq: needs layers with a window, and --pre-tockens is not "
                  "given; give both");
    }
    config.full_attention_every = *full_attention_every;
  }
  if (query_scalar) config.query_scalar = *query_scalar;
  if (soft_cap) config.attention_soft_cap = *soft_cap;
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
  options.query_scalar = config.query_scalar;
  if (config.prefix) options.sparse_mode = 5;
  if (config.alibi != AlibiKind::kDifference)
    options.alibi_type = config.alibi == AlibiKind::kDistance ? 2 : 3;
  if (config.attention_soft_cap > 0) options.soft_cap = config.attention_soft_cap;
  return options;
}

}  // namespace piton
