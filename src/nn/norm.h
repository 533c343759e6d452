// A norm layer: layer norm with gain and bias, or root-mean-square norm with gain.
#pragma once

#include <string>

#include "nn/shard.h"

namespace piton {

enum class NormKind : std::uint8_t { kLayer, kRms };

class Norm {
 public:
  // `of_heads`: its rows are heads, which the tensor ranks share: each rank has a part of the
  // gradient.
  Norm(ParameterList& parameters, const Shard& shard, const std::string& name, NormKind kind,
       std::int64_t width, double eps, bool of_heads = false);
  // x [n, width] -> the same.
  Value forward(Context& context, const Value& x) const;

 private:
  double eps_;
  Parameter* gain_;
  Parameter* bias_ = nullptr;
};

}  // namespace piton
