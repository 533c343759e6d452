// One transformer block: x + attention(norm(x)), then x + mlp(norm(x)). Of encoders in the
// published form: norm(x + attention(x)), then norm(x + mlp(x)).
#pragma once

#include <string>

#include "model/config.h"
#include "nn/attention.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace piton {

// The shape of the norms of the residual stream.
NormShape norm_shape(const ModelConfig& config);

// Of embeddings and of the first projection of a branch.
Initialization input_weights(const ModelConfig& config);

class Block {
 public:
  // `index`: number of this layer in the whole model, from 0.
  Block(ParameterList& parameters, const Shard& shard, const ModelConfig& config,
        std::int64_t index, const Adapters& adapters);
  // x [b*s, h], under sequence parallelism this rank's [b*s/t, h] -> the same shape.
  Value forward(Context& context, const Value& x, const AttentionInput& input) const;

 private:
  Value mlp(Context& context, const Value& x, const Value& residual) const;
  Value post_norm_forward(Context& context, const Value& x, const AttentionInput& input) const;

  bool post_norm_;
  Norm attention_norm_;
  Attention attention_;
  Norm mlp_norm_;
  Mlp mlp_;
};

}  // namespace piton
