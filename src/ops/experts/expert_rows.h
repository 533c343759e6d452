// The rows of tokens on their way to experts and back (kernels/experts.h).
#pragma once

#include "kernels/experts.h"
#include "ops/tape.h"

namespace piton {

// x [n, h] -> [n k, h]: a copy of each token for each of its experts, sorted by expert. For
// backward nothing is kept but `rows`; what later ops keep of the result is copied again from x.
Value dispatched(Context& context, const Value& x, const ExpertRows& rows);

// rows [n k, h], weights [n, k] -> [n, h]: the sum over the experts of each token. `places` as in
// ExpertRows.
Value combined(Context& context, const Value& rows, const Value& weights, const Tensor& places);

}  // namespace piton
