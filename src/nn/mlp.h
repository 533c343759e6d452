// The MLP of a block: the up projection (fused with the gate, if there is one), the activation, the
// down projection, then bias, dropout and residual. Tensor ranks split the rows of up and gate and
// the columns of down.
#pragma once

#include <optional>
#include <string>

#include "nn/linear.h"
#include "ops/activation.h"

namespace piton {

struct MlpShape {
  std::int64_t hidden = 0;      // h
  std::int64_t ffn_hidden = 0;  // f, the width of up and of gate
  bool gated = false;
  bool biases = false;
  ActivationKind activation = ActivationKind::kGeluTanh;
  GateRule gate_rule;                  // of a gated one
  std::optional<NormShape> end_norm;   // of the down projection
  double output_factor = 1;            // of it, after its norm
  double hidden_dropout = 0;           // probability
  const Adapters* adapters = nullptr;  // of the projections; read by the constructor; null: none
};

class Mlp {
 public:
  Mlp(ParameterList& parameters, const Shard& shard, const std::string& name, const MlpShape& shape,
      const BranchInitialization& initialization);
  // residual + dropout(mlp(x) + bias). x, residual, which may be null, and the result: [b*s, h],
  // under sequence parallelism this rank's [b*s/t, h].
  Value forward(Context& context, const Value& x, const Value* residual) const;
  // Its halves: x -> the activation [b*s, f/t] of all rows -> the result.
  Value first_half(Context& context, const Value& x) const;
  Value second_half(Context& context, const Value& active, const Value* residual) const;

 private:
  Shard shard_;
  MlpShape shape_;
  std::string site_;
  ColumnLinear up_;
  RowLinear down_;
};

}  // namespace piton
