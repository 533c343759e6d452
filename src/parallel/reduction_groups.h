// The groups over which a rank's gradients are summed and its values are sharded, derived from the
// placements of its parameters.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "ops/parameter.h"

namespace piton {

// The ranks that hold the same values of a parameter and different contributions to its gradient,
// or one of several instances of them. They share its shards. Gradients and values have separate
// communicators, so that neither waits for the other: values are prefetched while gradients are
// still being reduced.
struct ReductionGroup {
  Communicator* gradients = nullptr;
  Communicator* values = nullptr;
  // The ranks of all instances that hold the same shard, over which its sum is completed; null:
  // there is one instance.
  Communicator* replicas = nullptr;

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

  // The axes of a parameter's reduction group: context, expert and data, without those that split
  // the parameter.
  static AxisSet axes_of(const Parameter& parameter);
};

// Makes the groups. Collective: all ranks of the mesh call it. Each reduction group is divided into
// `instances` of consecutive ranks. Asserts, for every trainable parameter, that its gradient is
// partial over each axis of axes_of() with more than one rank.
ReductionGroups make_reduction_groups(const std::vector<Parameter*>& parameters, Mesh& mesh,
                                      int instances = 1);

}  // namespace piton
