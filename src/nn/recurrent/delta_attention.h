// Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464, section 3.4) as Qwen3-Next has it: attention
// of linear cost, whose keys and values are in one matrix for each head.
//
//   [q | k | v | g | s | a] = x W_in
//   q, k, v = SiLU of the causal convolution of their channels
//   y       = norm(delta_rule(q, k, v, a, s)) SiLU(g)      the norm is of each head
//   result  = y W_out
//
// Each tensor rank has 1 / t of the heads. Context ranks divide these for the convolution and the
// rule, which read rows in order: an all-to-all gives each whole samples of some heads, and another
// one gives the results back. Its c ranks divide hk / t.
#pragma once

#include <string>
#include <vector>

#include "nn/attention.h"

namespace piton {

struct DeltaShape {
  std::int64_t hidden = 0;       // h
  std::int64_t key_heads = 0;    // hk, of queries and keys
  std::int64_t value_heads = 0;  // hv, a multiple of hk
  std::int64_t key_size = 0;     // dk
  std::int64_t value_size = 0;   // dv
  std::int64_t width = 0;        // w, of the convolution
  double norm_eps = 0;
  double output_factor = 1;
  double hidden_dropout = 0;           // probability
  const Adapters* adapters = nullptr;  // of both linears; read by the constructor; null: none

  // Channels of q, k and v of all ranks.
  std::int64_t convolved() const { return 2 * key_heads * key_size + value_heads * value_size; }
};

class DeltaAttention {
 public:
  DeltaAttention(ParameterList& parameters, const Shard& shard, const std::string& name,
                 const DeltaShape& shape, const BranchInitialization& initialization);
  // residual + dropout(y W_out). x, residual and the result: [b*s, h], under sequence parallelism
  // this rank's [b*s/t, h]. Of the input it reads the samples, their segments, and the states.
  Value forward(Context& context, const Value& x, const Value& residual,
                const AttentionInput& input) const;

 private:
  struct Mixed {
    Value out;   // [n, hv/t, dv]
    Value gate;  // [n, hv/t * dv]
  };
  // Of rows [n, columns] of the projection.
  Mixed mixed(Context& context, const Value& projected, const AttentionInput& input) const;
  Mixed mixed_over_ranks(Context& context, const Value& projected,
                         const AttentionInput& input) const;

  Shard shard_;
  DeltaShape shape_;
  std::string output_site_;
  ColumnLinear input_;
  Parameter* filters_;  // [(2 hk dk + hv dv) / t, w]
  Parameter* rates_;    // [hv/t]
  Parameter* biases_;   // [hv/t]
  Norm norm_;
  RowLinear output_;
};

}  // namespace piton
