// Parts of a tensor as values of their own, and what may happen to a part before it is used.
//
// The gradients of the parts are written side by side into one buffer, which is then the gradient
// of the whole: Backward::place() hands a part's op its columns of it. So a fused projection costs
// no copy.
#pragma once

#include <vector>

#include "ops/tape.h"

namespace piton {

// The columns of x [n, w] as views: part i has widths[i] of them. The widths add up to w.
std::vector<Value> split_columns(Context& context, const Value& x,
                                 const std::vector<std::int64_t>& widths);

// x [.., d] of any strides as [n, d] without gaps: a copy, for ops that need one.
Value packed_rows(Context& context, const Value& x);

}  // namespace piton
