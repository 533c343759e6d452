// How a global tensor is placed on the mesh, axis by axis, and which sums its gradient still needs.
#pragma once

#include <array>
#include <cstdint>

#include "comm/mesh.h"

namespace piton {

struct AxisPlacement {
  enum class Kind : std::uint8_t {
    kReplicated,  // every rank of the axis holds the same values
    kSplit,       // each rank holds its part of `dim`
  };
  Kind kind = Kind::kReplicated;
  int dim = 0;
  // The gradient that backward computes on this rank is only this rank's contribution; the full
  // gradient is the sum over the axis. (Data: different samples. Tensor: norms of split tokens.
  // Pipeline: tied weights used on several stages.)
  bool gradient_is_partial = false;
};

struct Placement {
  std::array<AxisPlacement, kAxes> axis{};
  AxisPlacement& operator[](Axis a) { return axis[static_cast<int>(a)]; }
  const AxisPlacement& operator[](Axis a) const { return axis[static_cast<int>(a)]; }
  // The axes over which the gradient has to be summed.
  AxisSet partial_axes() const {
    AxisSet set = 0;
    for (int a = 0; a < kAxes; ++a) {
      if (axis[a].gradient_is_partial) set = static_cast<AxisSet>(set | (1U << a));
    }
    return set;
  }
};

}  // namespace piton
