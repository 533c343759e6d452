// A linear whose rows are multiplied with the matrices of their experts (kernels/linear.h).
//
// Each expert may have a low-rank adapter (ops/linear/linear_adapter.h), of the same rank r and
// scale for all of them. For the rows x of an expert with W, A [r, in] and B [f, r]:
//
//   y = x W^T + bias + scale (mask x A^T) B^T
//
// The mask is that of dropout; all adapters of a product have one.
//
// Rows are multiplied with A and B of their expert as with W. Where tensor ranks split the rows of
// W and B, each has a summand of the gradient of A; where they split the columns of W and A, of
// that of B.
#pragma once

#include <vector>

#include "ops/tape.h"

namespace piton {

// The adapters of m experts, one after another. B adds to columns first_output .. first_output + f
// - 1 of y.
struct ExpertAdapter {
  Parameter& a;  // [m r, in]
  Parameter& b;  // [m f, r]
  double scale = 1;
  std::int64_t first_output = 0;
};

// The matrices of m experts, one after another, and their biases.
struct ExpertWeights {
  Parameter& weight;          // [m out, in]
  Parameter* bias = nullptr;  // [m out], or null
  // Of ranks whose results are added up, one adds the biases. The others have no part of their
  // gradient.
  bool adds_bias = true;
  std::vector<ExpertAdapter> adapters = {};  // of different columns of y
  Tensor mask = {};  // [r, in] of elements of x, 0 or more, or empty: x as it is
};

// x [r, in], sorted by expert, of which the first first_rows[m] rows count; first_rows int32 [m +
// 1]
// -> y [r, out].
Value expert_linear(Context& context, const Value& x, const ExpertWeights& matrices,
                    const Tensor& first_rows);

}  // namespace piton
