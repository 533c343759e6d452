// How a decoder attends: its window, its positions and the form of the computation, under
// Megatron's and MindSpeed's flags.
//
// Training is causal self-attention, so query i sees keys j <= i, of its own document, and within
//
//   i - pre <= j <= i + next        --pre-tockens pre, --next-tockens next; each is no bound if not
//   given
//
// MindSpeed's sparse modes say which mask comes with the window:
//   0     the causal mask and the window: keys that are in both. (There, a window without a mask is
//         ignored; here the causal mask is always given.)
//   1     a whole mask, the window ignored: causal attention
//   2, 3  causal, counted from the first or from the last query and key: queries and keys are the
//   same
//         tokens, so both are causal attention; the window is ignored
//   4     the band alone, with both ends given; causal only if next <= 0, so anything else is
//   refused
// Where upstream ignores the window, giving one is an error here. Modes 5 to 8 take prefixes and
// lengths from outside of the model; packed documents are --reset-attention-mask instead.
//
// The triangle form (--triangle-attn) is another way to cut the same square, in training and
// evaluation: each block of rows against all keys up to its end, with one softmax
// (kernels/attention.h). It computes more pairs than tiles do, and bf16 is multiplied in fp32;
// decoding with a cache always goes by tiles.
//
// A token without any visible key (next below 0: the first ones) gets 0 from attention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options.h"

namespace piton {

struct ModelConfig;

struct AttentionOptions {
  std::optional<std::string> positions;
  std::optional<std::int64_t> window_before, window_after;
  int sparse_mode = 0;
  bool use_flash_attn = false;
  bool triangle_attn = false;
  std::optional<std::int64_t> triangle_block_size;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"position-embedding-type",
             "how a token knows its place (default: the family's)",
             {.resume = Resume::kMustMatch,
              .choices = {"learned_absolute", "rope", "alibi", "none"}}},
      positions);
    v(Option{"pre-tockens",
             "keys before a token that it sees beside itself (default: all)",
             {.aliases = {"pre-tokens"}, .resume = Resume::kMustMatch}},
      window_before);
    v(Option{"next-tockens",
             "keys up to i + N are within the window of token i; it is causal all the same (below "
             "0: the nearest are hidden)",
             {.aliases = {"next-tokens"}, .resume = Resume::kMustMatch}},
      window_after);
    v(Option{"sparse-mode",
             "0: causal within the window; 1, 2, 3: causal without one; 4: the window alone, with "
             "both ends",
             same},
      sparse_mode);
    v(Option{"use-flash-attn",
             "attention in tiles, without a matrix of scores: what it is unless another form is "
             "asked for"},
      use_flash_attn);
    v(Option{"triangle-attn", "attention in blocks of rows, each against all keys up to its end"},
      triangle_attn);
    v(Option{"triangle-block-size", "rows of a block of --triangle-attn (default: 512)"},
      triangle_block_size);
  }

  // Throws Error(kUsage) naming the flag.
  void apply(ModelConfig& config) const;
};

}  // namespace piton
