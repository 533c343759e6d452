// The groups over which a rank's gradients are summed, derived from the placements of its
// parameters.
#pragma once

#include <map>
#include <vector>

#include "comm/mesh.h"
#include "ops/parameter.h"

namespace piton {

struct ReductionGroups {
  Communicator* tensor = nullptr;
  Communicator* data = nullptr;  // data and context
  // Parameters that other stages hold too, in order of name, with the group of those stages.
  std::vector<std::pair<Parameter*, Communicator*>> tied;

  bool sums_over_tensor(const Parameter& parameter) const {
    return tensor->size() > 1 && (parameter.placement.partial_axes() & axes(Axis::kTensor)) != 0;
  }
  bool is_tied(const Parameter& parameter) const;
};

// Makes the groups: collective, called by all ranks of the mesh. Asserts that every trainable
// parameter is partial over data and context where they have more than one rank.
ReductionGroups make_reduction_groups(const std::vector<Parameter*>& trainable, Mesh& mesh);

}  // namespace piton
