// A multiple as a tape op.
#pragma once

#include "ops/tape.h"

namespace piton {

// factor x, of any shape.
Value scaled(Context& context, const Value& x, double factor);

}  // namespace piton
