// The groups over which a rank's gradients are summed and its values are sharded, derived from the
// placements of its parameters.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "ops/parameter.h"

namespace piton {

// The ranks that hold the same values of a parameter and different contributions to its gradient.
// They shard it among them. Gradients and values have separate communicators, so that neither waits
// for the other: gathers of values are prefetched while gradients are still being reduced.
struct ReductionGroup {
  Communicator* gradients = nullptr;
  Communicator* values = nullptr;

  int rank() const { return gradients->rank(); }
  int size() const { return gradients->size(); }
};

struct ReductionGroups {
  Communicator* tensor = nullptr;
  std::map<AxisSet, ReductionGroup> by_axes;
  // Parameters that several stages hold, in the order of names, with the group of these stages.
  std::vector<std::pair<Parameter*, Communicator*>> tied;

  const ReductionGroup& of(const Parameter& parameter) const {
    return by_axes.at(axes_of(parameter));
  }
  bool sums_over_tensor(const Parameter& parameter) const {
    return tensor->size() > 1 && (parameter.placement.partial_axes() & axes(Axis::kTensor)) != 0;
  }
  bool is_tied(const Parameter& parameter) const;

  // Data, context and expert, but for the axes that split the parameter.
  static AxisSet axes_of(const Parameter& parameter);
};

// Makes the groups: collective, called by all ranks of the mesh. Asserts that the gradient of every
// trainable parameter is partial over each of those axes that has more than one rank.
ReductionGroups make_reduction_groups(const std::vector<Parameter*>& parameters, Mesh& mesh);

}  // namespace piton
