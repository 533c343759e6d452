// Splits a tensor into parts that are separate values, and joins two of them.
//
// The gradients of the parts are written side by side into one buffer, which becomes the gradient
// of the whole: Backward::place() gives the op that uses a part the part's columns of the buffer.
// So splitting a fused projection needs no copies.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "ops/tape.h"

namespace piton {

// Views of the columns of x [n, w]: part i is [n, widths[i]]. The widths add up to w.
std::vector<Value> split_columns(Context& context, const Value& x,
                                 const std::vector<std::int64_t>& widths);

// The columns of a [n, w] and then those of b [n, v], as one tensor [n, w + v].
Value joined_columns(Context& context, const Value& a, const Value& b);

// x [n, d] -> [n, copies, d], the same row so many times: of a head that each of several ranks
// gets.
Value copied_heads(Context& context, const Value& x, std::int64_t copies);

// Copies x [..., d] of any strides to a contiguous [n, d], for ops that need one.
Value packed_rows(Context& context, const Value& x);

// How the rows of a micro-batch are divided.
struct DividedRows {
  Communicator& group;
  bool sequence_parallel = false;  // x has this rank's rows of the group's
};

// The rows with the numbers `ids`, int32 [k], of which an encoder predicts something. x [n, h],
// under sequence parallelism this rank's [n/t, h] -> [k, h], the same on every rank. A row may be
// chosen several times. The gradient must be the same on every rank of the group; sums of it are
// fp32 (fp64).
Value chosen_rows(Context& context, const Value& x, const Tensor& ids, const DividedRows& rows);

}  // namespace piton
