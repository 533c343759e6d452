// Splits a tensor into parts that are separate values.
//
// The gradients of the parts are written side by side into one buffer, which becomes the gradient
// of the whole: Backward::place() gives the op that uses a part the part's columns of the buffer.
// So splitting a fused projection needs no copies.
#pragma once

#include <vector>

#include "ops/tape.h"

namespace piton {

// Views of the columns of x [n, w]: part i is [n, widths[i]]. The widths add up to w.
std::vector<Value> split_columns(Context& context, const Value& x,
                                 const std::vector<std::int64_t>& widths);

// Copies x [..., d] of any strides to a contiguous [n, d], for ops that need one.
Value packed_rows(Context& context, const Value& x);

}  // namespace piton
