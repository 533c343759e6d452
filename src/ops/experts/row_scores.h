// One number of each row, or several, from a small matrix that every rank has whole: routers and
// gates.
#pragma once

#include "ops/tape.h"

namespace piton {

// x [n, h], weight [m, h], bias [m] or null -> x W^T + bias [n, m], in fp32 (fp64).
Value row_scores(Context& context, const Value& x, Parameter& weight, Parameter* bias = nullptr);

}  // namespace piton
