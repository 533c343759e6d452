// Linear layers over the tensor-parallel group (ops/linear.h says who holds and sends what). With a
// group of one they are ordinary linear layers; there is no separate unsplit class.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/shard.h"

namespace piton {

// y = x W^T + b, W split by rows; several canonical matrices may be fused into one local tensor.
class ColumnLinear {
 public:
  // Canonical names are part.name + ".weight" (".bias"); the local tensor's is name + ".weight".
  ColumnLinear(ParameterList& parameters, const Shard& shard, const std::string& name,
               const std::vector<RowPart>& parts, std::int64_t in, bool bias,
               Initialization initialization);
  Value forward(Context& context, const Value& x,
                std::optional<ActivationKind> activation = {}) const;

 private:
  Shard shard_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

// y = residual + dropout(sum over ranks of x W^T + b), W split by columns; b is whole on every
// rank.
class RowLinear {
 public:
  RowLinear(ParameterList& parameters, const Shard& shard, const std::string& name,
            std::int64_t out, std::int64_t in, bool bias, Initialization initialization);
  // `residual` may be null. `dropout.rows` says which rows y holds.
  Value forward(Context& context, const Value& x, const Value* residual,
                const Dropout& dropout) const;

 private:
  Shard shard_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

}  // namespace piton
