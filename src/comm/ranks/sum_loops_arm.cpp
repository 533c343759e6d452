#include "comm/ranks/vector/sum_loops.h"

namespace piton {

SumLoops widest_sum_loops() { return sum_neon::reduce; }

std::vector<SumLoops> sum_loops_here() { return {sum_neon::reduce}; }

}  // namespace piton
