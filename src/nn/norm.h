// A norm layer: layer norm with gain and bias, or root-mean-square norm with gain.
#pragma once

#include <string>

#include "nn/shard.h"

namespace piton {

enum class NormKind : std::uint8_t { kLayer, kRms };

class Norm {
 public:
  Norm(ParameterList& parameters, const Shard& shard, const std::string& name, NormKind kind,
       std::int64_t width, double eps);
  Value forward(Context& context, const Value& x) const;

 private:
  double eps_;
  Parameter* gain_;
  Parameter* bias_ = nullptr;
};

}  // namespace piton
