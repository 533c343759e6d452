// Rotary position embedding as a tape op (kernels/rotary.h).
#pragma once

#include "ops/tape.h"

namespace piton {

struct RotarySettings {
  // fp32 (fp64) [positions, c/2]: c channels of each head are rotated, c <= d. Both
  // empty: no rotation.
  Tensor cosine;
  Tensor sine;
  Tensor positions;  // int32 [n]: position of each row
  Rotary::Convention convention = Rotary::Convention::kHalves;
  std::int64_t first_channel = 0;  // of each head, from which on they are rotated
};

// x [n, heads, d] -> the same shape. Rows and heads may have any stride. Works in place: the result
// has the memory of x. Backward rotates the gradient in place if nothing else uses its memory.
Value rotary(Context& context, const Value& x, const RotarySettings& settings);

}  // namespace piton
