// One transformer block: x + attention(norm(x)), then x + mlp(norm(x)). With a parallel residual
// (Black et al. 2022, arXiv:2204.06745, section 2.1.2): x + attention(norm(x)) + mlp(norm(x)). Of
// encoders in the published form: norm(x + attention(x)), then norm(x + mlp(x)). Without norms at
// the beginning of branches (OLMo 2, Walsh et al. 2024, arXiv:2501.00656, section 3.2):
// x + norm(attention(x)), then x + norm(mlp(x)). In a decoder with an encoder, x +
// cross_attention(norm(x)) between the two. Blocks of models with state spaces may have one
// branch alone.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "model/config.h"
#include "nn/attention.h"
#include "nn/cross_attention.h"
#include "nn/expert_mlp.h"
#include "nn/latent_attention.h"
#include "nn/mlp.h"
#include "nn/norm.h"
#include "nn/recurrent/delta_attention.h"
#include "nn/recurrent/short_convolution.h"
#include "nn/recurrent/state_space.h"

namespace piton {

// The shape of the norms of the residual stream.
NormShape norm_shape(const ModelConfig& config);

// Of embeddings and of the first projection of a branch.
Initialization input_weights(const ModelConfig& config);
// Of tables of tokens, positions and token types; a head that shares the table of tokens has them
// too.
Initialization embedding_weights(const ModelConfig& config);

// What the blocks of a stack are: of a decoder, of an encoder, or of a decoder that also attends to
// an encoder.
struct StackKind {
  std::string prefix;  // of names: "" or "encoder."
  bool causal = true;
  bool cross = false;
  std::optional<std::int64_t> like =
      {};                         // the layer whose facts all blocks have; none: each its own
  std::int64_t cached_after = 0;  // layers of a KvCache before those of this stack

  // Of layer `index` of the stack.
  std::int64_t facts_of(std::int64_t index) const { return like.value_or(index); }
};

// What a block begins with.
using Mixer =
    std::variant<Attention, LatentAttention, DeltaAttention, StateSpace, ShortConvolution>;

class Block {
 public:
  struct Place {
    StackKind stack;
    std::int64_t index = 0;  // of this layer in its whole stack, from 0
  };
  Block(ParameterList& parameters, const Shard& shard, const ModelConfig& config,
        const Place& place, const Adapters& adapters);
  // x [b*s, h], under sequence parallelism this rank's [b*s/t, h] -> the same shape. `cross`: of a
  // stack with cross, else null.
  Value forward(Context& context, const Value& x, const AttentionInput& input,
                const CrossInput* cross) const;
  // Of a stack with cross.
  const CrossAttention& cross() const { return *cross_; }
  // LatentAttention::attends_to_latents(); false for other attention.
  bool attends_to_latents() const;
  bool has_mixer() const { return attention_.has_value(); }
  // Whether a text has a state there, in place of keys and values.
  bool has_states() const;

 private:
  Value attention(Context& context, const Value& x, const Value& residual,
                  const AttentionInput& input) const;
  Value mlp(Context& context, const Value& x, const Value& residual) const;
  Value post_norm_forward(Context& context, const Value& x, const AttentionInput& input) const;
  // The input of a branch: its norm of the residual stream, else that in the type of the weights.
  Value branch_input(Context& context, const std::optional<Norm>& norm, const Value& x) const;

  bool post_norm_;
  bool parallel_;
  DType dtype_;
  std::optional<Norm> attention_norm_;  // none: branches without norms at their beginning
  std::optional<Mixer> attention_;      // none: a block with the second branch alone
  std::optional<Norm> cross_norm_;
  std::optional<CrossAttention> cross_;
  std::optional<Norm> mlp_norm_;  // none: the same, or a parallel residual with one norm
  std::optional<std::variant<Mlp, ExpertMlp>> mlp_;  // none: a block without the second branch
};

}  // namespace piton
