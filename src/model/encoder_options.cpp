#include "model/encoder_options.h"

#include "base/options/option_range.h"
#include "model/config.h"

namespace piton {
namespace {

constexpr std::int64_t kMostTypes = 1024;

}  // namespace

void EncoderOptions::apply(ModelConfig& config) const {
  const auto refuse = [&](bool given, const char* flag) {
    if (!given || config.encoder) return;
    throw Error(Fault::kUsage, "--{}: is for --model-family bert; leave it out", flag);
  };
  refuse(post_norm, "apply-residual-connection-post-layernorm");
  refuse(no_pair_head, "bert-no-binary-head");
  refuse(token_types.has_value(), "token-types");
  refuse(first_position.has_value(), "first-position");
  refuse(exact_gelu_head, "exact-gelu-head");
  if (!config.encoder) return;
  EncoderFacts& facts = *config.encoder;
  if (post_norm) facts.post_norm = true;
  if (no_pair_head) {
    facts.pair_head = false;
    facts.token_types = 0;
  }
  if (token_types) facts.token_types = *token_types;
  if (first_position) facts.first_position = *first_position;
  facts.exact_gelu_head = exact_gelu_head;
}

EncoderOptions EncoderOptions::of(const ModelConfig& config) {
  if (!config.encoder) return {};
  const EncoderFacts& facts = *config.encoder;
  return {.post_norm = facts.post_norm,
          .token_types = facts.token_types,
          .first_position = facts.first_position,
          .no_pair_head = !facts.pair_head,
          .exact_gelu_head = facts.exact_gelu_head};
}

void check_encoder(const ModelConfig& config) {
  if (!config.encoder) return;
  const EncoderFacts& facts = *config.encoder;
  const auto only = [](bool holds, const char* flag, const char* wanted) {
    if (holds) return;
    throw Error(Fault::kUsage, "{}: an encoder (bert) has {}; leave the flag out", flag, wanted);
  };
  only(config.positions == PositionKind::kLearned, "--position-embedding-type",
       "learned_absolute positions");
  only(config.norm == NormKind::kLayer, "--normalization", "LayerNorm");
  only(config.tied, "--untie-embeddings-and-output-weights", "one table for embedding and head");
  only(config.heads == config.groups, "--num-query-groups", "a key and a value for each head");
  only(!config.gated, "--activation", "an MLP without a gate");
  only(config.biases && config.output_bias && config.qkv_biases, "--disable-bias-linear",
       "biases in all linears");
  only(!config.window_before && !config.window_after, "--pre-tockens, --next-tockens",
       "no attention window");
  only(config.attention_block == 0, "--triangle-attn", "no causal triangle");
  only(!config.embedding_norm, "--embed-layernorm",
       "a norm of the embedding only with --apply-residual-connection-post-layernorm");
  only(!config.end_norms, "--post-norm",
       "no norms within branches (see --apply-residual-connection-post-layernorm)");
  only(!config.head_norms, "--qk-layernorm", "no norms of heads");
  only(!config.normalized_head, "--normalized-head", "no normalized head");
  only(!config.gains_from_one, "--apply-layernorm-1p", "gains as they are");
  only(!config.scaled_embedding, "--input-embeds-norm", "an embedding without a factor");
  only(config.attention_soft_cap == 0, "--attn-logit-softcapping", "no caps");
  only(config.logit_soft_cap == 0, "--output-logit-softcapping", "no caps");
  only(!facts.exact_gelu_head || config.activation != ActivationKind::kGeluErf, "--exact-gelu-head",
       "gelu-erf in its layers already");
  PITON_ASSERT(facts.word_head || !facts.pair_head, "a head for pairs alone");
  PITON_ASSERT(!facts.word_head || !facts.pooler, "a pooler without its head");
  check_range("--token-types", facts.token_types, 0, kMostTypes);
  check_range("--first-position", facts.first_position, 0, config.max_positions - 1);
  if (facts.pair_head && facts.token_types == 1) {
    throw Error(Fault::kUsage,
                "--token-types: got 1, wanted 2 for the two parts of a sample, or 0 for no table; "
                "--bert-no-binary-head has one part");
  }
}

}  // namespace piton
