// Moves between the token-split and the whole form of an activation, and their adjoints
// (Korthikanti et al. 2022). Rows are cut into t equal contiguous parts.
#pragma once

#include "comm/communicator.h"
#include "ops/tape.h"

namespace piton {

// [n/t, h] -> [n, h]; backward reduce-scatters.
Value gather_rows(Context& context, const Value& x, Communicator& group);
// [n, h] -> [n/t, h], this rank's part of a replicated x; backward gathers.
Value scatter_rows(Context& context, const Value& x, Communicator& group);

}  // namespace piton
