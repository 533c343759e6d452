// The inner loops of sum.h for one instruction set: namespace sum_v2, sum_v3 or sum_v4.
#pragma once

#include <cstdint>

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

namespace sum_v2 {
bool reduce(const SumCall& call);
}  // namespace sum_v2
namespace sum_v3 {
bool reduce(const SumCall& call);
}
namespace sum_v4 {
bool reduce(const SumCall& call);
}

}  // namespace piton
