// Models of an encoder and a decoder (T5): what they have in addition to a decoder's facts, with
// the flags for it.
//
//   embedding  one table of tokens for both stacks, dropout
//   encoder    blocks whose attention sees all tokens of the source, never its padding; a norm
//   decoder    blocks with causal attention, attention to the encoder's outputs, and the MLP; a
//   norm head       logits by the table of tokens, or by its own one
//
// Two forms (Raffel et al. 2020, arXiv:1910.10683; Shoeybi et al. 2019, arXiv:1909.08053):
//
//                --position-embedding-type   norm        biases   head
//   published    relative                    RMS         none     tied: its input times h^-0.5
//   Megatron's   learned_absolute            layer norm  all      tied: with a bias
//
// Relative positions are a bias of scores for each head and bucket of distances, which the layers
// of a stack share (ops/relative_bias.h); scores are not divided (--query-pre-attn-scalar 1).
#pragma once

#include <cstdint>
#include <optional>

#include "base/options/options.h"

namespace piton {

struct ModelConfig;

// What only models of an encoder and a decoder have. ModelConfig::layers are those of the decoder.
struct EncoderDecoderFacts {
  std::int64_t encoder_layers = 0;
  std::int64_t buckets = 32;           // into which distances are divided, for relative positions
  std::int64_t farthest_bucket = 128;  // this distance and longer ones share the last bucket
  bool scaled_head = false;            // the input of the head is multiplied by h^-0.5
  bool head_bias = false;              // logits have a bias

  bool operator==(const EncoderDecoderFacts&) const = default;
};

struct EncoderDecoderOptions {
  std::optional<std::int64_t> encoder_layers, decoder_layers, buckets, farthest_bucket;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch, .placeholder = "N"};
    v(Option{"encoder-num-layers", "t5: blocks of the encoder (default: --num-layers)", same},
      encoder_layers);
    v(Option{"decoder-num-layers", "t5: blocks of the decoder (default: --num-layers)", same},
      decoder_layers);
    v(Option{"relative-attention-num-buckets",
             "t5: buckets of distances, with --position-embedding-type relative (default: 32)",
             same},
      buckets);
    v(Option{"relative-attention-max-distance",
             "t5: distance from which all are in the last bucket (default: 128)", same},
      farthest_bucket);
  }

  // Sets the facts that depend on the form of positions and of the head, after these are set.
  // `layers`: --num-layers. Throws Error(kUsage) that names the flag, also for a flag that
  // `config`, a model without an encoder and a decoder, does not have.
  void apply(ModelConfig& config, std::optional<std::int64_t> layers) const;
  // The options whose apply() gives the values of `config`.
  static EncoderDecoderOptions of(const ModelConfig& config);
};

// Throws Error(kUsage) that names the flag of the first fact that a model of an encoder and a
// decoder cannot have. Of other models it refuses relative positions alone.
void check_encoder_decoder(const ModelConfig& config);

}  // namespace piton
