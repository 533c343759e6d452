// A linear layer and its collective, as one op (Shoeybi et al. 2019, arXiv:1909.08053, section 3).
//
// Two ops could not interleave slices, so the collective belongs to the product:
//
//                 W on one rank  x            y            forward sends   backward sends
//   column        [f/t, h]       [n, h]       [n, f/t]     nothing         all-reduce dx
//   row           [f, h/t]       [n, h/t]     [n, f]       all-reduce y    nothing
// Under sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198) the whole-width side holds
// n/t rows: column gathers x and reduce-scatters dx; row reduce-scatters y and gathers dy.
//
// What follows a product is done with its tiles still in cache, where nothing comes between: an
// activation after column, bias and residual after row on a group of one without dropout.
//
// The tape keeps the rank's own rows of x, and column gathers them again in backward. The
// collective of dx is started before dW is computed and waited for after it.
#pragma once

#include <optional>

#include "comm/communicator.h"
#include "ops/tape.h"

namespace piton {

struct LinearStrategy {
  // Rows cut into this many parts at row-tile edges, where one part can be multiplied while the
  // next one is gathered or reduced. Products beside which nothing is sent stay whole.
  int slices = 1;
  bool sequence_parallel = false;
};

// y = x W^T + bias, or its activation. `bias` may be null. `output` kF32 for logits. Slices whose
// edges do not fall on row tiles are rounded to them; with fewer tiles than slices there are as
// many slices as tiles.
Value column_linear(Context& context, const Value& x, Parameter& weight, Parameter* bias,
                    Communicator& group, const LinearStrategy& strategy, DType output,
                    std::optional<ActivationKind> activation = {});

// What ends a residual branch (kernels/dropout.h); each part is optional.
struct BranchEnd {
  Parameter* bias = nullptr;
  const Value* residual = nullptr;
  Dropout dropout;
};

// y = residual + dropout(sum over the group of x W^T + bias). `dropout.rows` says which rows y
// holds.
Value row_linear(Context& context, const Value& x, Parameter& weight, Communicator& group,
                 const LinearStrategy& strategy, const BranchEnd& end);

}  // namespace piton
