// Mamba-2 (Dao & Gu 2024, arXiv:2405.21060, section 7) as Granite 4 has it: in place of keys and
// values of all tokens, a matrix for each head.
//
//   [g | v | s] = x W_in        [k | q] = x W_shared
//   v, k, q     = SiLU of the causal convolution of their channels
//   y           = norm(state_space(q, k, v, s) SiLU(g))     a norm of the channels of each group
//   result      = y W_out
//
// Context ranks divide the heads of a tensor rank for the convolution and the rule, as in
// nn/recurrent/delta_attention.h; keys and queries of one group go to all of them.
//
// A group of heads has its keys and queries in common (B and C in the paper; v is x there, s is
// dt). Each tensor rank has 1 / t of the heads, and 1 / t of the groups if they can be divided;
// else each rank has all groups.
#pragma once

#include <string>

#include "nn/attention.h"
#include "ops/recurrent/delta_rule.h"

namespace piton {

struct StateSpaceShape {
  std::int64_t hidden = 0;      // h
  std::int64_t groups = 0;      // hk
  std::int64_t heads = 0;       // hv, a multiple of hk
  std::int64_t state_size = 0;  // dk
  std::int64_t head_size = 0;   // dv
  std::int64_t width = 0;       // w, of the convolution
  double norm_eps = 0;
  double output_factor = 1;
  double hidden_dropout = 0;           // probability
  const Adapters* adapters = nullptr;  // of all linears; read by the constructor; null: none
};

// Of one of t tensor ranks: 1 / t of the groups, or all of them.
std::int64_t groups_of_rank(std::int64_t groups, int t);

class StateSpace {
 public:
  StateSpace(ParameterList& parameters, const Shard& shard, const std::string& name,
             const StateSpaceShape& shape, const BranchInitialization& initialization);
  // residual + dropout(y W_out). x, residual and the result: [b*s, h], under sequence parallelism
  // this rank's [b*s/t, h]. Of the input it reads the samples, their segments, and the states.
  Value forward(Context& context, const Value& x, const Value& residual,
                const AttentionInput& input) const;

 private:
  // Of rows of the projections, [n, columns] each -> [n, hv/t, dv].
  Value mixed(Context& context, const Value& value, const Value& step, const Value& shared,
              const AttentionInput& input) const;
  Value mixed_over_ranks(Context& context, const Value& value, const Value& step,
                         const Value& shared, const AttentionInput& input) const;
  // The parameters of heads from `begin` on.
  StateSpaceParameters heads_from(std::int64_t begin) const;
  Shard shard_;
  StateSpaceShape shape_;
  std::string output_site_;
  ColumnLinear input_;
  ColumnLinear shared_;
  Parameter* filters_;         // [hv dv / t, w]
  Parameter* filter_biases_;   // [hv dv / t]
  Parameter* shared_filters_;  // [2 hk dk, w], or 1 / t of these rows
  Parameter* shared_filter_biases_;
  Parameter* rates_;  // [hv / t], as the next two
  Parameter* step_biases_;
  Parameter* skips_;
  Norm norm_;
  RowLinear output_;
};

}  // namespace piton
