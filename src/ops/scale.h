// Multiplication by a constant as a tape op.
#pragma once

#include "ops/tape.h"

namespace piton {

// factor * x; x has any shape.
Value scaled(Context& context, const Value& x, double factor);

}  // namespace piton
