// Layers with a state of fixed size as tape ops (kernels/recurrent): the convolution of channels,
// the gated delta rule, that of a state space, and gates.
#pragma once

#include <optional>

#include "kernels/recurrent/text_rows.h"
#include "ops/tape.h"

namespace piton {

// The states of one layer for the texts of a cache, and which of them the rows of a pass have.
struct StateView {
  Tensor rows;         // [texts, w - 1, c]: the last rows before the convolution
  Tensor shared_rows;  // the same of channels that all ranks have, or empty
  Tensor states;       // fp32 (fp64) [texts, hv, dk, dv], or empty
  TextRows texts;

  bool given() const { return texts.given(); }
};

// How the rows of x are divided: into samples of equal length, each of one or several documents; or
// into texts of a cache.
struct RecurrentRows {
  std::int64_t samples = 1;
  Tensor segments;  // int32 [n], or empty
  StateView cache;  // in place of samples; without a tape
};

// Of a parameter: as many rows as an op has channels or heads, from `begin` on.
struct ParameterRows {
  Parameter& parameter;
  std::int64_t begin = 0;
};

// Of the channels of a convolution.
struct FilterParameters {
  ParameterRows weight;                    // [c, w]
  std::optional<ParameterRows> bias = {};  // [c]
  bool silu = true;                        // else the sums as they are
};

// SiLU of the causal convolution of each channel, or that alone. x [n, c], rows may be strided ->
// [n, c].
Value convolved(Context& context, const Value& x, const FilterParameters& filters,
                const RecurrentRows& rows);

// The inputs of the gated delta rule, of this rank's heads. Rows may be strided.
struct DeltaRows {
  Value q;         // [n, hk, dk]
  Value k;         // [n, hk, dk]
  Value v;         // [n, hv, dv]
  Value decay;     // [n, hv]
  Value strength;  // [n, hv]
};

// -> [n, hv, dv]. `rate` and `bias`: [hv], of the decay.
Value delta_rule(Context& context, const DeltaRows& inputs, const ParameterRows& rate,
                 const ParameterRows& bias, const RecurrentRows& rows);

// The inputs of the rule of a state space (kernels/recurrent/delta_rule.h), of this rank's heads.
// Rows may be strided.
struct StateSpaceRows {
  Value q;     // [n, hk, dk]: C of Mamba-2
  Value k;     // [n, hk, dk]: B
  Value v;     // [n, hv, dv]
  Value step;  // [n, hv]
};

// [hv] each: log(-A) of Mamba-2, the bias of steps, and D.
struct StateSpaceParameters {
  ParameterRows rate;
  ParameterRows bias;
  ParameterRows skip;
};

// -> [n, hv, dv].
Value state_space(Context& context, const StateSpaceRows& inputs,
                  const StateSpaceParameters& parameters, const RecurrentRows& rows);

// activation(gate) x, [n, c] each; rows may be strided.
Value gated(Context& context, const Value& x, const Value& gate, ActivationKind kind);

}  // namespace piton
