#include "base/levels_x86.h"
#include "comm/ranks/vector/sum_loops.h"

namespace piton {
SumLoops widest_sum_loops() {
  if (has_x86_64_v4()) return sum_v4::reduce;
  return has_x86_64_v3() ? sum_v3::reduce : sum_v2::reduce;
}

std::vector<SumLoops> sum_loops_here() {
  std::vector<SumLoops> loops = {sum_v2::reduce};
  if (has_x86_64_v3()) loops.push_back(sum_v3::reduce);
  if (has_x86_64_v4()) loops.push_back(sum_v4::reduce);
  return loops;
}

}  // namespace piton
