// The MLP of a block: the up projection (with a gate: one fused projection), the activation, the
// down projection, and the end of the residual branch. Tensor ranks split the rows of up and gate
// and the columns of down.
#pragma once

#include <optional>
#include <string>

#include "nn/linear.h"
#include "ops/activation.h"

namespace piton {

struct MlpShape {
  std::int64_t hidden = 0;      // h
  std::int64_t ffn_hidden = 0;  // f, the width of up; gate has the same
  bool gated = false;
  bool biases = false;
  ActivationKind activation = ActivationKind::kGeluTanh;
  std::optional<NormShape> end_norm;  // of the down projection
};

class Mlp {
 public:
  Mlp(ParameterList& parameters, const Shard& shard, const std::string& name, const MlpShape& shape,
      Initialization input, Initialization output, double hidden_dropout);
  // residual + dropout(mlp(x) + bias). x, residual and the result: [b*s, h], under sequence
  // parallelism this rank's [b*s/t, h].
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
