// Linear layers over the tensor-parallel group (ops/linear.h says who holds and sends what). With a
// group of one they are ordinary linear layers; there is no separate unsplit class.
#pragma once

#include <string>
#include <vector>

#include "nn/shard.h"

namespace piton {

// y = x W^T + b, W split by rows; several canonical matrices may be fused into one local tensor.
class ColumnLinear {
 public:
  // Canonical names are part.name + ".weight" (".bias"); the local tensor's is name + ".weight".
  ColumnLinear(ParameterList& parameters, const Shard& shard, const std::string& name,
               const std::vector<RowPart>& parts, std::int64_t in, bool bias, Initialization initialization);
  Value forward(Context& context, const Value& x) const;

 private:
  Shard shard_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

// y = sum over ranks of x W^T, W split by columns. The bias is whole on every rank and is added after
// the sum by whoever ends the residual branch: bias().
class RowLinear {
 public:
  RowLinear(ParameterList& parameters, const Shard& shard, const std::string& name, std::int64_t out,
            std::int64_t in, bool bias, Initialization initialization);
  Value forward(Context& context, const Value& x) const;
  Parameter* bias() const { return bias_; }

 private:
  Shard shard_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

}  // namespace piton
