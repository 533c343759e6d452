// The MLP of a block: up (with gate: one fused projection), activation, down, and the end of the
// residual branch. Up and gate are split by rows, down by columns.
#pragma once

#include <string>

#include "nn/linear.h"
#include "ops/activation.h"

namespace piton {

struct MlpShape {
  std::int64_t hidden = 0;      // h
  std::int64_t ffn_hidden = 0;  // f, of gate and of up
  bool gated = false;
  bool biases = false;
  ActivationKind activation = ActivationKind::kGeluTanh;
};

class Mlp {
 public:
  Mlp(ParameterList& parameters, const Shard& shard, const std::string& name, const MlpShape& shape,
      Initialization input, Initialization output, double hidden_dropout);
  // residual + dropout(mlp(x) + bias).
  Value forward(Context& context, const Value& x, const Value& residual) const;

 private:
  Shard shard_;
  MlpShape shape_;
  std::string site_;
  double hidden_dropout_;
  ColumnLinear up_;
  RowLinear down_;
};

}  // namespace piton
