// The last step of a residual branch: y = residual + dropout(x + bias) (kernels/dropout.h); and a
// value in two parts, divided by a mask.
#pragma once

#include "ops/tape.h"

namespace piton {

// x [n, h], bias [h] or null, residual [n, h] or null -> y [n, h], of the type of the residual,
// else of x. Under sequence parallelism x is this rank's [n/t, h]; `dropout.rows` says which rows
// of the micro-batch x holds.
Value dropout_add(Context& context, const Value& x, Parameter* bias, const Value* residual,
                  const Dropout& dropout);

// x [n, h] in another type; its gradient is converted to that of x.
Value converted(Context& context, const Value& x, DType dtype);

// kept = dropout(x), rest = x - dropout(x): their sum is x. x [n, h]; `dropout.rows` as above. The
// context is one of training.
struct MaskedParts {
  Value kept;
  Value rest;
};
MaskedParts split_by_mask(Context& context, const Value& x, const Dropout& dropout);

}  // namespace piton
