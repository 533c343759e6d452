#include "nn/norm.h"

#include "ops/norm.h"

namespace piton {

Norm::Norm(ParameterList& parameters, const Shard& shard, const std::string& name, NormKind kind,
           std::int64_t width, double eps)
    : eps_(eps) {
  gain_ = &parameters.add(
      replicated_parameter(shard, name + ".weight", width, 0, {Initialization::Kind::kOne}));
  gain_->contributions += 1;
  if (kind == NormKind::kLayer) {
    bias_ = &parameters.add(replicated_parameter(shard, name + ".bias", width, 0, {}));
    bias_->contributions += 1;
  }
}

Value Norm::forward(Context& context, const Value& x) const {
  return bias_ != nullptr ? layer_norm(context, x, *gain_, *bias_, eps_)
                          : rms_norm(context, x, *gain_, eps_);
}

}  // namespace piton
