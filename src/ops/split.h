// Splits a tensor into parts that are separate values.
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

// Copies x [..., d] of any strides to a contiguous [n, d], for ops that need one.
Value packed_rows(Context& context, const Value& x);

// How the rows of a micro-batch are divided.
struct SampleRows {
  std::int64_t samples = 0;  // b
  Communicator& group;
  bool sequence_parallel = false;  // x has this rank's rows of the group's
};

// The first row of each sample, of which an encoder predicts what the whole sample is. x [b*s, h],
// under sequence parallelism this rank's [b*s/t, h] -> rows 0, s, 2 s, ... of the
// whole, [b, h], on every rank. Its gradient must be the same on every rank of the group.
Value first_rows(Context& context, const Value& x, const SampleRows& rows);

}  // namespace piton
