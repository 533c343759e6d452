// Rotary position embedding as a tape op (kernels/rotary.h).
#pragma once

#include "ops/tape.h"

namespace piton {

struct RotarySettings {
  // Tables [positions, d/2], or narrower where only the first channels of a head turn; empty:
  // nothing turns.
  Tensor cosine;
  Tensor sine;
  Tensor positions;  // int32 [n]: of each row
  Rotary::Convention convention = Rotary::Convention::kHalves;
};

// x [n, heads, d], rows and heads of any stride. Takes the memory of x over: it is turned in place,
// and so is its gradient where that has a place (Backward::place).
Value rotary(Context& context, const Value& x, const RotarySettings& settings);

}  // namespace piton
