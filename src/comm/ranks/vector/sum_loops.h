// The inner loops of sum.h for one instruction set: namespace sum_v2, sum_v3, sum_v4 or sum_neon.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace piton {

// Arguments of reduce() in sum.h, as plain arrays.
struct SumCall {
  DType dtype;
  Reduction reduction;
  const std::byte* const* sources;
  int num_sources;
  std::byte* const* targets;
  int num_targets;
  std::int64_t elements;
};

// False for a reduction that they do not know.
using SumLoops = bool (*)(const SumCall& call);

// All that this machine can run, the widest last (sum_loops_x86.cpp, sum_loops_arm.cpp).
std::vector<SumLoops> sum_loops_here();
SumLoops widest_sum_loops();

// Those of this build's processors exist.
namespace sum_v2 {
bool reduce(const SumCall& call);
}  // namespace sum_v2
namespace sum_v3 {
bool reduce(const SumCall& call);
}
namespace sum_v4 {
bool reduce(const SumCall& call);
}
namespace sum_neon {
bool reduce(const SumCall& call);
}

}  // namespace piton
