// Options of samples for models that predict masked words: BERT and T5, with Megatron's names.
#pragma once

#include <cstdint>
#include <optional>

#include "base/options/options.h"

namespace piton {

// What the samples are made for.
enum class MaskedTask : std::uint8_t {
  kBert,  // two parts of a text in the right or the wrong order, with masked words
  kT5,    // spans of words replaced by sentinels for an encoder, and the spans for a decoder
};

struct MaskingOptions {
  double mask_probability = 0.15;
  double short_sequence_probability = 0.1;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules experiment{.resume = Resume::kMustMatch};
    v(Option{"mask-prob", "bert, t5: share of the tokens of a sample that is masked", experiment},
      mask_probability);
    v(Option{"short-seq-prob",
             "bert, t5: probability that a sample is made of fewer tokens than fit", experiment},
      short_sequence_probability);
  }
};

struct DecoderRowOptions {
  std::optional<std::int64_t> decoder_sequence;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"decoder-seq-length",
             "t5: number of tokens that the decoder reads",
             {.resume = Resume::kMustMatch, .placeholder = "N"}},
      decoder_sequence);
  }
};

}  // namespace piton
