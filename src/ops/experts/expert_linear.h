// A linear whose rows are multiplied with the matrices of their experts (kernels/linear.h).
#pragma once

#include "ops/tape.h"

namespace piton {

// The matrices of m experts, one after another, and their biases.
struct ExpertWeights {
  Parameter& weight;          // [m out, in]
  Parameter* bias = nullptr;  // [m out], or null
  // Of ranks whose results are added up, one adds the biases. The others have no part of their
  // gradient.
  bool adds_bias = true;
};

// x [r, in], sorted by expert, of which the first first_rows[m] rows count; first_rows int32 [m +
// 1]
// -> y [r, out].
Value expert_linear(Context& context, const Value& x, const ExpertWeights& matrices,
                    const Tensor& first_rows);

}  // namespace piton
