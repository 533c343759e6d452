// A norm layer: layer norm with gain and bias, or root-mean-square norm with gain.
#pragma once

#include <string>

#include "nn/shard.h"

namespace piton {

enum class NormKind : std::uint8_t { kLayer, kRms };

class Norm {
 public:
  // `of_heads`: the rows of x are heads, and each tensor rank has other heads, so the gradients of
  // gain and bias are summed over the tensor ranks.
  Norm(ParameterList& parameters, const Shard& shard, const std::string& name, NormKind kind,
       std::int64_t width, double eps, bool of_heads = false);
  // x [n, width] -> [n, width].
  Value forward(Context& context, const Value& x) const;

 private:
  double eps_;
  Parameter* gain_;
  Parameter* bias_ = nullptr;
};

}  // namespace piton
