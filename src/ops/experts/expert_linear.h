// A linear whose rows are multiplied with the matrices of their experts (kernels/linear.h).
#pragma once

#include "ops/tape.h"

namespace piton {

// x [r, in], sorted by expert, of which the first first_rows[experts] rows count; weight [experts
// out, in], of `weight.matrices` experts; first_rows int32 [experts + 1] -> y [r, out].
Value expert_linear(Context& context, const Value& x, Parameter& weight, const Tensor& first_rows);

}  // namespace piton
