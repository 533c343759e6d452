// Rows and others with a gate (kernels/elementwise.h, GatedSumForward).
#pragma once

#include "ops/tape.h"

namespace piton {

// a [n, h], x [n, h], gate [n, 1] -> a + sigmoid(gate) x [n, h]. gate: fp32 (fp64).
Value gated_sum(Context& context, const Value& a, const Value& x, const Value& gate);

}  // namespace piton
