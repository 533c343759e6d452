// Encoders (BERT, RoBERTa): what they have in addition to a decoder's facts, with the flags for it.
//
//   embedding  tokens + positions + types, dropout     (published: a norm before the dropout)
//   blocks     attention sees all tokens of the text before and after a token, never padding
//              before each branch a norm               (published: after each residual sum)
//   words      a linear of h rows, activation, norm; then logits by the table of tokens, and a bias
//   pairs      of the first token: a linear of h rows and tanh; then logits of two labels: whether
//              two parts of a text are in their order (0) or in the other one (1)
//   labels     of a classifier, in the place of both: the same with other labels
//              (model/label_head.h). Dropout before the logits and, where positions do not begin
//              with 0 (RoBERTa), before the linear
//
// Norms before the branches are Megatron's form (Shoeybi et al. 2019, arXiv:1909.08053, section
// 5.4), with a norm after the last block. The published form (Devlin et al. 2019,
// arXiv:1810.04805) is that of Megatron's --apply-residual-connection-post-layernorm.
#pragma once

#include <cstdint>
#include <optional>

#include "base/options/options.h"

namespace piton {

struct ModelConfig;

// What only encoders have.
struct EncoderFacts {
  bool post_norm = false;           // norms after each residual sum, and of the embedding
  std::int64_t token_types = 2;     // rows of the table of types; 0: no table
  bool word_head = true;            // without it a model gives vectors (BertModel) or labels
  bool pair_head = true;            // and the pooler before it; only with the other head
  bool pooler = false;              // alone, of a model without these heads
  std::int64_t first_position = 0;  // position of the first token (RoBERTa: 2)
  bool exact_gelu_head = false;     // the head for words has gelu-erf, whatever the layers have

  bool operator==(const EncoderFacts&) const = default;
};

struct EncoderOptions {
  bool post_norm = false;
  std::optional<std::int64_t> token_types, first_position;
  bool no_pair_head = false;
  bool exact_gelu_head = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"apply-residual-connection-post-layernorm",
             "bert: norms after each residual sum, as BERT was published, instead of before each "
             "branch",
             same},
      post_norm);
    v(Option{"bert-no-binary-head",
             "bert: no head for the order of two parts; samples have one part", same},
      no_pair_head);
    v(Option{"token-types",
             "bert: rows of the table of token types (default: 2; with --bert-no-binary-head 0, no "
             "table)",
             {.resume = Resume::kMustMatch, .placeholder = "N"}},
      token_types);
    v(Option{"first-position",
             "bert: position of the first token (default: 0; RoBERTa: 2)",
             {.resume = Resume::kMustMatch, .placeholder = "N"}},
      first_position);
    v(Option{"exact-gelu-head",
             "bert: the head for masked words has the exact GELU, as Megatron's has, and not the "
             "activation of the layers",
             same},
      exact_gelu_head);
  }

  // Throws Error(kUsage) that names the flag, also for a flag that `config`, a decoder, does not
  // have.
  void apply(ModelConfig& config) const;
  // The options whose apply() gives the values of `config`.
  static EncoderOptions of(const ModelConfig& config);
};

// Throws Error(kUsage) that names the flag of the first fact that an encoder cannot have. Does
// nothing for decoders.
void check_encoder(const ModelConfig& config);

}  // namespace piton
