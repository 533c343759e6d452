#include "parallel/reduction_groups.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace piton {

AxisSet ReductionGroups::axes_of(const Parameter& parameter) {
  AxisSet set = 0;
  for (const Axis axis : {Axis::kContext, Axis::kExpert, Axis::kData}) {
    const bool split = parameter.placement[axis].kind == AxisPlacement::Kind::kSplit;
    if (!split) set = static_cast<AxisSet>(set | axes(axis));
  }
  return set;
}

bool ReductionGroups::is_tied(const Parameter& parameter) const {
  return std::ranges::any_of(tied, [&](const auto& one) { return one.first == &parameter; });
}

namespace {

ReductionGroup group_of_instance(Mesh& mesh, AxisSet set, int instances) {
  if (instances == 1) return {&mesh.group(set, "gradients"), &mesh.group(set, "values")};
  const GroupPart instance{.parts = instances};
  return {.gradients = &mesh.part_of_group(set, instance, "gradients"),
          .values = &mesh.part_of_group(set, instance, "values"),
          .replicas = &mesh.part_of_group(set, {instances, /*across=*/true}, "gradients")};
}

}  // namespace

ReductionGroups make_reduction_groups(const std::vector<Parameter*>& parameters, Mesh& mesh,
                                      int instances) {
  ReductionGroups groups;
  groups.tensor = &mesh.group(Axis::kTensor);
  // The group of dense parameters always exists, even on a stage without parameters.
  std::set<AxisSet> sets{axes(Axis::kContext, Axis::kExpert, Axis::kData)};
  std::vector<Parameter*> tied;
  for (Parameter* parameter : parameters) {
    const AxisSet set = ReductionGroups::axes_of(*parameter);
    sets.insert(set);
    if (!parameter->trainable) continue;
    const AxisSet partial = parameter->placement.partial_axes();
    for (const Axis axis : {Axis::kContext, Axis::kExpert, Axis::kData}) {
      PITON_ASSERT(mesh.size(axis) == 1 || (set & axes(axis)) == 0 || (partial & axes(axis)) != 0,
                   "{}: gradients are not partial over {}", parameter->name, name(axis));
    }
    if (parameter->tied_stages.size() > 1) tied.push_back(parameter);
  }
  for (const AxisSet set : sets) {
    groups.by_axes[set] = group_of_instance(mesh, set, instances);
  }
  std::ranges::sort(tied, {}, &Parameter::name);
  for (Parameter* parameter : tied)
    groups.tied.emplace_back(parameter, &mesh.stages(parameter->tied_stages));
  return groups;
}

}  // namespace piton
