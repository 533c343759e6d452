// Layers of Mamba-2 (nn/recurrent/state_space.h) in place of attention, with Megatron-core's flags,
// and layers with short convolutions (nn/recurrent/short_convolution.h), which are letters of the
// same patterns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"

namespace piton {

struct ModelConfig;

struct StateSpaceFacts {
  std::vector<std::int64_t> attention_layers;  // ascending; all others have the states
  std::int64_t heads = 0;
  std::int64_t groups = 8;  // of heads, which have keys and queries in common
  std::int64_t head_size = 64;
  std::int64_t state_size = 128;
  std::int64_t width = 4;  // of the convolution

  bool in_layer(std::int64_t layer) const;
  std::int64_t values() const { return heads * head_size; }
  std::int64_t keys() const { return groups * state_size; }
  // Channels of the convolutions.
  std::int64_t convolved() const { return values() + 2 * keys(); }
  bool operator==(const StateSpaceFacts&) const = default;
};

struct ShortConvolutionFacts {
  std::vector<std::int64_t> attention_layers;  // ascending; all others have the convolutions
  std::int64_t width = 3;                      // rows that a convolution reads
  bool biases = false;                         // of the convolutions, and of linears around them

  bool in_layer(std::int64_t layer) const;
  bool operator==(const ShortConvolutionFacts&) const = default;
};

// Throws Error(kUsage) that names the flag of the first field that is invalid, or that such models
// do not have.
void check_state_space(const ModelConfig& config);
void check_short_convolution(const ModelConfig& config);

struct StateSpaceOptions {
  std::optional<std::string> pattern;
  bool hybrid = false;
  double attention_share = 0;
  double mlp_share = 0;
  std::optional<std::int64_t> heads, groups, head_size, state_size, width;
  std::optional<std::int64_t> short_width;
  bool short_biases = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const auto named = [](const char* older) {
      return OptionRules{.aliases = {older}, .resume = Resume::kMustMatch};
    };
    v(Option{"hybrid-override-pattern",
             "letters of layers, M for Mamba-2, C for a short convolution (LFM2), * for attention, "
             "- for an MLP and E for experts; an MLP or experts after M, C or * are of the same "
             "layer, as in others (M-M*-M- is four layers; default: all have attention and an MLP)",
             named("hybrid-layer-pattern")},
      pattern);
    v(Option{"is-hybrid-model",
             "the letters of --num-layers layers are M, but for those that the next two flags make "
             "others"},
      hybrid);
    v(Option{"hybrid-attention-ratio",
             "with --is-hybrid-model: the share of letters that are *, at equal distances"},
      attention_share);
    v(Option{"hybrid-mlp-ratio",
             "with --is-hybrid-model: the share of letters that are -, in place of M"},
      mlp_share);
    v(Option{"mamba-num-heads",
             "Mamba-2: heads (default: as many as have twice --hidden-size channels)",
             {.resume = Resume::kMustMatch}},
      heads);
    v(Option{"mamba-num-groups", "Mamba-2: groups of heads with the same keys and queries",
             named("mamba-ngroups")},
      groups);
    v(Option{"mamba-head-dim", "Mamba-2: channels of each head", named("mamba-headdim")},
      head_size);
    v(Option{"mamba-state-dim", "Mamba-2: channels of each key and query", named("mamba-d-state")},
      state_size);
    v(Option{"mamba-d-conv",
             "Mamba-2: rows that the convolution reads",
             {.resume = Resume::kMustMatch}},
      width);
    v(Option{"short-conv-kernel-dim",
             "short convolutions: rows that each reads (default: 3)",
             {.resume = Resume::kMustMatch}},
      short_width);
    v(Option{"short-conv-bias",
             "short convolutions: add biases to them and to the linears around them",
             {.resume = Resume::kMustMatch}},
      short_biases);
  }

  // The letters of `count` layers of Megatron-core, of which shares are attention and MLPs, as its
  // mamba_hybrid_layer_allocation.py places them.
  static std::string letters_of(std::int64_t count, double attention_share, double mlp_share);

  // Of a pattern: the number of layers, and which of them have attention and an MLP. config.layers
  // is as given by --num-layers, or 0. All three throw Error(kUsage) that names the flag.
  void set_layers(ModelConfig& config) const;
  // Which layers have experts, if the model has some. Call it before widths are derived.
  void set_experts(ModelConfig& config) const;
  // The rest. Call it after the width of the model is set.
  void apply(ModelConfig& config) const;
  // The options whose apply() gives the values of `config`.
  static StateSpaceOptions of(const ModelConfig& config);

 private:
  void apply_short_convolution(ModelConfig& config) const;
  // The pattern, or what --is-hybrid-model makes of the number of letters; nothing: neither is
  // given.
  std::optional<std::string> all_letters(std::int64_t count) const;
};

}  // namespace piton
