// The last step of a residual branch: y = residual + dropout(x + bias) (kernels/dropout.h).
#pragma once

#include "ops/tape.h"

namespace piton {

// x [n, h], bias [h] or null, residual [n, h] or null -> y [n, h]. Under sequence parallelism x is
// this rank's [n/t, h]; `dropout.rows` says which rows of the micro-batch x holds.
Value dropout_add(Context& context, const Value& x, Parameter* bias, const Value* residual,
                  const Dropout& dropout);

}  // namespace piton
