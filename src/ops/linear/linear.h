// A linear layer and its collective as one op (Shoeybi et al. 2019, arXiv:1909.08053, section 3),
// so that one slice can be multiplied while another one is sent (linear_strategy.h).
//
//                 W on one rank  x            y            forward sends   backward sends
//   column        [f/t, h]       [n, h]       [n, f/t]     nothing         all-reduce dx
//   row           [f, h/t]       [n, h/t]     [n, f]       all-reduce y    nothing
//
// Under sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198) the whole-width side holds
// n/t rows: column gathers x and reduce-scatters dx; row reduce-scatters y and gathers dy.
//
// Some steps are fused with the product, while its output tiles are in cache: an activation after
// column; bias and residual after row, if the group has one member and there is no dropout.
//
// The tape keeps this rank's own rows of x; column gathers them again in backward, unless the
// strategy keeps them all. The collective of dx starts before dW is computed and is waited for
// after it. If the weight is frozen, only its adapters (linear_adapter.h) keep x, and nothing is
// gathered again.
#pragma once

#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "ops/linear/linear_adapter.h"
#include "ops/linear/linear_strategy.h"
#include "ops/linear/shared_rows.h"
#include "ops/tape.h"

namespace piton {

// A weight that is split over the ranks of `group`: rows for column, columns for row.
struct SplitWeight {
  Parameter& weight;  // column [f/t, h], row [f, h/t]
  Communicator& group;
  LinearStrategy strategy;
  SharedRows* shared = nullptr;  // for fused products; null: there are none
  // What is added to the product. Under sequence parallelism, the dropout of a column linear is
  // that of this rank's rows of x, and that of a row linear that of all rows.
  std::vector<LinearAdapter> adapters = {};
  Float8Products float8 = {};  // of the products with the weight, and of its gradient
};

// The last step of a column-split product.
struct ColumnEnd {
  Parameter* bias = nullptr;  // [f/t]; null: none
  DType output = DType::kF32;
  std::optional<ActivationKind> activation;  // of the biased product
};

// y = x W^T + adapters + bias, or the activation of that. x [n, h], under sequence parallelism this
// rank's [n/t, h]; weight [f/t, h] -> y [n, f/t] of dtype `end.output`. Slices end at row tiles, so
// there are at most as many slices as tiles, and own rows are multiplied first.
Value column_linear(Context& context, const Value& x, const SplitWeight& split,
                    const ColumnEnd& end);

// A column linear of gate and up with the activation that follows it (kernels/linear.h).
struct GatedColumns {
  Parameter* bias = nullptr;  // [f/t]; null: none
  ActivationKind kind = ActivationKind::kSilu;
  GateRule rule = {};
};

// Whether gated_column_linear() takes x: no backward follows, nothing is gathered, no adapters and
// no FP8, and the back end is faster so.
bool gates_in_product(const Context& context, const Value& x, const SplitWeight& split);
// The gated activation of column_linear(), without its result in between: x [n, h], weight [f/t, h]
// -> [n, f/t / 2] of the dtype of x.
Value gated_column_linear(Context& context, const Value& x, const SplitWeight& split,
                          const GatedColumns& end);

// The last step of a residual branch (kernels/dropout.h); each part is optional.
struct BranchEnd {
  Parameter* bias = nullptr;        // [f]
  const Value* residual = nullptr;  // the shape of y
  Dropout dropout;
};

// y = residual + dropout(sum over the group of (x W^T + adapters) + bias). x [n, h/t], weight [f,
// h/t] -> y [n, f], under sequence parallelism this rank's [n/t, f]. `dropout.rows` says which rows
// of the micro-batch y holds. y has the type of the residual, else that of x.
Value row_linear(Context& context, const Value& x, const SplitWeight& split, const BranchEnd& end);

}  // namespace piton
