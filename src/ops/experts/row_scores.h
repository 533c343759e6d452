// One number of each row, or several, from a small matrix that every rank has whole: routers and
// gates.
#pragma once

#include "ops/tape.h"

namespace piton {

// x [n, h], weight [m, h] -> x W^T [n, m], in fp32 (fp64).
Value row_scores(Context& context, const Value& x, Parameter& weight);

}  // namespace piton
