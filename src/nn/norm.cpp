#include "nn/norm.h"

#include "ops/norm.h"
#include "ops/recurrent/norm_of_groups.h"

namespace piton {

Norm::Norm(ParameterList& parameters, const Shard& shard, const std::string& name,
           const NormShape& shape)
    : kind_(shape.kind),
      eps_(shape.eps),
      gain_offset_(shape.gain_from_one ? 1 : 0),
      dtype_(shard.dtype),
      of_heads_(shape.of_heads) {
  const Initialization gains{shape.gain_from_one ? Initialization::Kind::kZero
                                                 : Initialization::Kind::kOne};
  if (shape.over_ranks || shape.groups > 1) {
    PITON_ASSERT(shape.kind == NormKind::kRms, "{}: a layer norm over ranks", name);
    PITON_ASSERT(shape.groups == 1 || shape.groups % shard.size() == 0,
                 "{}: {} groups over {} ranks", name, shape.groups, shard.size());
    if (shape.groups == 1) group_ = shard.group;
    if (shape.groups > 1) groups_ = shape.groups / shard.size();
    PITON_ASSERT(shape.gain || shape.groups == 1, "{}: groups without gains", name);
    if (!shape.gain) return;
    gain_ = &parameters.add(
        row_split_parameter(shard, name + ".weight", {{name + ".weight", shape.width}}, 0, gains));
    gain_->contributions = 1;
    return;
  }
  if (!shape.gain) return;
  const auto add = [&](const std::string& part, Initialization initialization) {
    Parameter parameter =
        replicated_parameter(shard, name + part, shape.width, 0, std::move(initialization));
    if (shape.of_heads && shard.size() > 1) {
      parameter.placement[Axis::kTensor].gradient_is_partial = true;
    }
    parameter.contributions = 1;
    return &parameters.add(std::move(parameter));
  };
  gain_ = add(".weight", gains);
  if (shape.kind == NormKind::kLayer && shape.bias) bias_ = add(".bias", {});
}

Value Norm::forward(Context& context, const Value& x) const {
  const NormSettings settings{
      .eps = eps_,
      .gain_offset = gain_offset_,
      .again = context.recompute.norms && !of_heads_ && group_ == nullptr &&
               groups_ == 0,  // rotary turns those of heads in place
  };
  if (gain_ == nullptr) {
    return norm_without_gain(
        context, x, {.dtype = dtype_, .centered = kind_ == NormKind::kLayer, .group = group_},
        settings);
  }
  if (groups_ > 0) return rms_norm_of_groups(context, x, *gain_, groups_, settings);
  if (group_ != nullptr) return rms_norm_over_ranks(context, x, *gain_, settings, *group_);
  return kind_ == NormKind::kLayer ? layer_norm(context, x, *gain_, bias_, settings)
                                   : rms_norm(context, x, *gain_, settings);
}

}  // namespace piton
