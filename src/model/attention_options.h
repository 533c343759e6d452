// Options of a decoder's attention: window, positions and form of the computation, with the flags
// of Megatron and MindSpeed.
//
// Training is causal self-attention: query i sees keys j <= i of the same document within the
// window
//
//   i - pre <= j <= i + next        --pre-tockens pre, --next-tockens next
//
// A flag that is not given sets no bound.
//
// MindSpeed's sparse modes select the mask that is used in addition to the window:
//   0     the causal mask and the window: keys that are in both. (MindSpeed ignores a window
//         without a mask; here the causal mask always applies.)
//   1     the causal mask alone; the window is ignored
//   2, 3  causal, aligned at the first or at the last query and key. Queries and keys are the same
//         tokens here, so both are causal attention; the window is ignored
//   4     the window alone; both of its ends must be given. It is causal only if next <= 0, so
//         other values are refused
//   5, 6  causal, with a prefix (6 is the compressed form of the same mask): the tokens of a prompt
//         see one another. A prompt is what precedes the first label of a text, of each document of
//         a packed row, so no token sees the token that it predicts. Training on instruction data
//         only: running text has no prompts, and decoding with a cache does not compute the mask
//   7, 8  of packed rows: causal within each document, aligned as modes 3 and 2 are
//         (--reset-attention-mask, or --neat-pack, divides rows into documents)
// In modes that ignore the window, giving one is an error. MindSpeed takes only modes 0 and 2 with
// --use-flash-attn; of the modes that differ from causal attention here, 5 to 8 are refused with
// it.
//
// ALiBi adds a bias to the score of a query at i and a key at j, with the slope m of a head:
// --alibi-fusion-attn-type, the pse types of MindSpeed's kernels,
//   0   scale q k + m (j - i)               the bias is an input of the kernel (the default)
//   2   scale q k - m |j - i|               the kernel computes it: that of 0, but for keys after i
//   3   scale q k - m sqrt(|j - i|)         the same with the root
// Type 1 is scale (q k + bias): callers have to divide the bias by the scale, which gives type 0,
// or it is too small by sqrt(d). MindSpeed refuses it, as here.
//
// The triangle form (--triangle-attn) computes the same attention with another algorithm, in
// training and evaluation: each block of rows against all keys up to its end, with one softmax
// (kernels/attention.h). It computes more pairs than the tiled form, and multiplies bf16 in fp32.
// Decoding with a cache always uses the tiled form.
//
// A token that sees no key (the first ones, if next < 0) gets 0 from attention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options/options.h"
#include "model/state_space_options.h"

namespace piton {

struct ModelConfig;

// Multi-head latent attention (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1) in place of grouped
// queries, with Megatron's flags. Keys and values of all heads are products of one small row, the
// latent, of each token; queries may be too:
//
//   [c | r] = x W_down           --kv-lora-rank, --qk-pos-emb-head-dim channels
//   [k | v] = norm(c) W_up       for each head --qk-head-dim, --v-head-dim channels
//   q       = x W_q              or, with --q-lora-rank, norm(x W_q_down) W_q
//
// A head's key is [k | r], with the same r for all heads, and its query has as many channels.
// Rotary positions turn the channels of r, and the last ones of each query, in pairs 2i and 2i + 1,
// or in halves with --latent-rotary-halves. The norms are there with --qk-layernorm.
struct LatentFacts {
  std::int64_t query_rank = 0;  // width of the small rows of queries; 0: queries are products of x
  std::int64_t rank = 512;      // width of the latents
  std::int64_t own = 128;       // channels of a key that it has for itself
  std::int64_t turned = 64;     // channels of a key that all heads have in common
  std::int64_t value = 128;     // channels of a value
  double norm_eps = 0;          // of the norms of latents; 0: that of the model

  std::int64_t head_size() const { return own + turned; }
  bool operator==(const LatentFacts&) const = default;
};

// Throws Error(kUsage) that names the flag of the first field that is invalid, or that such models
// do not have.
void check_latent(const ModelConfig& config);

struct LatentOptions {
  bool latent = false;
  std::optional<std::int64_t> query_rank, rank, own, turned, value;
  std::optional<double> norm_eps;
  bool halves = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"multi-latent-attention",
             "compute keys and values of all heads from one small row of each token (MLA)",
             {.aliases = {"multi-head-latent-attention"}, .resume = Resume::kMustMatch}},
      latent);
    v(Option{"q-lora-rank",
             "MLA: width of the small row of queries (default: queries are products of the whole "
             "row)",
             same},
      query_rank);
    v(Option{"kv-lora-rank", "MLA: width of the small row of keys and values", same}, rank);
    v(Option{"qk-head-dim",
             "MLA: channels of each query and key without positions (default: 128)",
             {.aliases = {"qk-nope-head-dim"}, .resume = Resume::kMustMatch}},
      own);
    v(Option{"qk-pos-emb-head-dim",
             "MLA: channels of each query and key with rotary positions (default: 64)",
             {.aliases = {"qk-rope-head-dim"}, .resume = Resume::kMustMatch}},
      turned);
    v(Option{"v-head-dim", "MLA: channels of each value (default: 128)", same}, value);
    v(Option{"latent-norm-epsilon",
             "MLA: --norm-epsilon of the norms of latents (default: that of the others)", same},
      norm_eps);
    v(Option{"latent-rotary-halves",
             "MLA: rotate channels i and i + d/2 together, not 2i and 2i + 1 (MiniCPM3)", same},
      halves);
  }

  // Also sets what follows: the width of heads, a key for each head, no biases of queries, keys and
  // values. Call it after heads are set. `head_size`, `groups`: as given by flags. Throws
  // Error(kUsage) that names the flag.
  void apply(const std::optional<std::int64_t>& head_size,
             const std::optional<std::int64_t>& groups, ModelConfig& config) const;
  // The options whose apply() gives the values of `config`.
  static LatentOptions of(const ModelConfig& config);
};

// Layers with the gated delta rule (nn/recurrent/delta_attention.h) in place of attention, with
// Megatron-core's flags.
struct DeltaFacts {
  std::int64_t attention_every = 4;  // layers N, 2 N, ... have attention
  std::int64_t key_heads = 16;       // of queries and keys
  std::int64_t value_heads = 32;
  std::int64_t key_size = 128;
  std::int64_t value_size = 128;
  std::int64_t width = 4;  // of the convolution

  // Whether layer `layer` has the rule.
  bool in_layer(std::int64_t layer) const { return (layer + 1) % attention_every != 0; }
  // Channels of queries, keys and values.
  std::int64_t convolved() const { return 2 * key_heads * key_size + value_heads * value_size; }
  bool operator==(const DeltaFacts&) const = default;
};

// Throws Error(kUsage) that names the flag of the first field that is invalid, or that such models
// do not have.
void check_delta(const ModelConfig& config);

struct DeltaOptions {
  std::optional<std::int64_t> attention_every, key_heads, value_heads, key_size, value_size, width;
  bool output_gate = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"linear-attention-freq",
             "N: layers N, 2 N, ... have attention, the others the gated delta rule (Qwen3-Next; "
             "default: that of the family, else all have attention)",
             same},
      attention_every);
    v(Option{"linear-num-key-heads", "gated delta rule: heads of queries and keys (default: 16)",
             same},
      key_heads);
    v(Option{"linear-num-value-heads",
             "gated delta rule: heads of values, a multiple of those of keys (default: 32)", same},
      value_heads);
    v(Option{"linear-key-head-dim",
             "gated delta rule: channels of each query and key (default: 128)", same},
      key_size);
    v(Option{"linear-value-head-dim", "gated delta rule: channels of each value (default: 128)",
             same},
      value_size);
    v(Option{"linear-conv-kernel-dim",
             "gated delta rule: rows that the convolution before it reads (default: 4)", same},
      width);
    v(Option{"attention-output-gate",
             "multiply what attention gives with the sigmoid of a gate of each channel "
             "(Qwen3-Next)",
             same},
      output_gate);
  }

  // Throws Error(kUsage) that names the flag.
  void apply(ModelConfig& config) const;
  // The options whose apply() gives the values of `config`.
  static DeltaOptions of(const ModelConfig& config);
};

struct AttentionOptions {
  std::optional<std::string> positions;
  std::optional<std::int64_t> window_before, window_after;
  int sparse_mode = 0;
  bool use_flash_attn = false;
  bool triangle_attn = false;
  std::optional<std::int64_t> triangle_block_size;
  std::optional<std::int64_t> full_attention_every, full_attention_first;
  std::optional<double> query_scalar, score_factor, soft_cap;
  std::optional<std::int64_t> alibi_type;
  std::optional<std::string> softmax;
  LatentOptions latent;
  DeltaOptions delta;
  StateSpaceOptions state_space;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"position-embedding-type",
             "kind of position embedding (default: that of the family); absolute and rotary are "
             "older names of learned_absolute and rope",
             {.resume = Resume::kMustMatch,
              .choices = {"learned_absolute", "rope", "alibi", "relative", "none", "absolute",
                          "rotary"}}},
      positions);
    v(Option{"pre-tockens",
             "number of earlier keys that a token sees (default: all)",
             {.aliases = {"pre-tokens"}, .resume = Resume::kMustMatch}},
      window_before);
    v(Option{"next-tockens",
             "N: token i sees no key after i + N (below 0: the nearest are hidden); attention is "
             "causal in any case",
             {.aliases = {"next-tokens"}, .resume = Resume::kMustMatch}},
      window_after);
    v(Option{"sparse-mode",
             "mask: 0 causal and window; 1, 2, 3 causal only; 4 window only, with both ends given; "
             "5, 6 causal, and the tokens of a prompt see one another (instruction data); 7, 8 "
             "causal within each document (with --reset-attention-mask or --neat-pack)",
             same},
      sparse_mode);
    v(Option{"alibi-fusion-attn-type",
             "bias of ALiBi, times the slope of a head: 0 the difference of positions, 2 minus the "
             "distance (the same for earlier keys), 3 minus the root of the distance (default: 0)",
             same},
      alibi_type);
    v(Option{"window-attn-skip-freq",
             "N: layers N, 2 N, ... see all keys, the others only the window (default: all have "
             "the window)",
             same},
      full_attention_every);
    v(Option{"window-attn-skip-first",
             "F: with --window-attn-skip-freq N, layers F, F + N, ... see all keys (CWM: 1; "
             "default: N)",
             same},
      full_attention_first);
    v(Option{"query-pre-attn-scalar",
             "number by whose square root scores are divided (default: --kv-channels)", same},
      query_scalar);
    v(Option{"attention-multiplier",
             "factor of scores, in place of one over a square root (Granite)",
             {.aliases = {"softmax-scale"}, .resume = Resume::kMustMatch}},
      score_factor);
    v(Option{"attn-logit-softcapping",
             "cap c of scores: x becomes c tanh(x / c) (Gemma 2; default: no cap)", same},
      soft_cap);
    v(Option{"softmax-type",
             "softmax of scores: vanilla, of keys alone; off-by-one, with one more score of 0 that "
             "has no value; learnable, with such a score that each head learns (gpt-oss; default: "
             "that of the family)",
             {.resume = Resume::kMustMatch, .choices = {"vanilla", "off-by-one", "learnable"}}},
      softmax);
    v(Option{"use-flash-attn",
             "compute attention in tiles, without a matrix of scores (the default)"},
      use_flash_attn);
    v(Option{"triangle-attn",
             "compute attention in blocks of rows, each against all keys up to its end"},
      triangle_attn);
    v(Option{"triangle-block-size", "number of rows per block of --triangle-attn (default: 512)"},
      triangle_block_size);
    latent.visit(v);
    delta.visit(v);
    state_space.visit(v);
  }

  bool has_prefix() const { return sparse_mode == 5 || sparse_mode == 6; }
  bool divides_documents() const { return sparse_mode == 7 || sparse_mode == 8; }
  // Throws Error(kUsage) that names the flag.
  void apply(ModelConfig& config) const;
  // The options whose apply() gives the values of `config`.
  static AttentionOptions of(const ModelConfig& config);
};

}  // namespace piton
