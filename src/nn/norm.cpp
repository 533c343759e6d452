#include "nn/norm.h"

#include "ops/norm.h"

namespace piton {

Norm::Norm(ParameterList& parameters, const Shard& shard, const std::string& name, NormKind kind,
           std::int64_t width, double eps, bool of_heads)
    : eps_(eps) {
  const auto add = [&](const std::string& part, Initialization initialization) {
    Parameter parameter =
        replicated_parameter(shard, name + part, width, 0, std::move(initialization));
    if (of_heads && shard.size() > 1) {
      parameter.placement[Axis::kTensor].gradient_is_partial = true;
    }
    parameter.contributions = 1;
    return &parameters.add(std::move(parameter));
  };
  gain_ = add(".weight", {Initialization::Kind::kOne});
  if (kind == NormKind::kLayer) bias_ = add(".bias", {});
}

Value Norm::forward(Context& context, const Value& x) const {
  return bias_ != nullptr ? layer_norm(context, x, *gain_, *bias_, eps_)
                          : rms_norm(context, x, *gain_, eps_);
}

}  // namespace piton
