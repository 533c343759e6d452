#include "parallel/reduction_groups.h"

#include <algorithm>

#include "base/error.h"

namespace piton {

bool ReductionGroups::is_tied(const Parameter& parameter) const {
  return std::ranges::any_of(tied, [&](const auto& one) { return one.first == &parameter; });
}

ReductionGroups make_reduction_groups(const std::vector<Parameter*>& trainable, Mesh& mesh) {
  ReductionGroups groups;
  groups.tensor = &mesh.group(Axis::kTensor);
  groups.data = &mesh.group(axes(Axis::kContext, Axis::kData));
  std::vector<Parameter*> tied;
  for (Parameter* parameter : trainable) {
    const AxisSet partial = parameter->placement.partial_axes();
    for (const Axis axis : {Axis::kContext, Axis::kData}) {
      PITON_ASSERT(mesh.size(axis) == 1 || (partial & axes(axis)) != 0,
                   "{}: gradients are not partial over {}", parameter->name, name(axis));
    }
    PITON_ASSERT(mesh.size(Axis::kExpert) == 1, "{}: an expert axis", parameter->name);
    if (parameter->tied_stages.size() > 1) tied.push_back(parameter);
  }
  std::ranges::sort(tied, {}, &Parameter::name);
  for (Parameter* parameter : tied)
    groups.tied.emplace_back(parameter, &mesh.stages(parameter->tied_stages));
  return groups;
}

}  // namespace piton
