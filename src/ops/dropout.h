// The end of a residual branch: y = residual + dropout(x + bias) (kernels/dropout.h).
#pragma once

#include "ops/tape.h"

namespace piton {

// `bias` may be null, `residual` may be null. `dropout.rows` says which rows x holds.
Value dropout_add(Context& context, const Value& x, Parameter* bias, const Value* residual,
                  const Dropout& dropout);

}  // namespace piton
