// The rows of tokens on their way to experts and back (kernels/experts.h).
#pragma once

#include "kernels/experts.h"
#include "ops/tape.h"

namespace piton {

// The experts of this rank.
struct ExpertRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// The rows of these experts for tokens with these choices, int32 [n, k], of which an expert has at
// most `most`.
ExpertRows sorted_rows(Context& context, const Tensor& choices, const ExpertRange& experts,
                       std::int64_t most);

// x [n, h] -> [r, h]: a copy of each token for each of its experts, sorted by expert. For
// backward nothing is kept but `rows`; what later ops keep of the result is copied again from x.
Value dispatched(Context& context, const Value& x, const ExpertRows& rows);

// x [n, h], weights [n, 1] -> [n, h]: each row times its weight.
Value weighted(Context& context, const Value& x, const Value& weights);

// rows [r, h] -> [n, h]: the sum over the experts of each token, whose weights are 1.
Value summed(Context& context, const Value& rows, const ExpertRows& sorted);

// rows [r, h], weights [n, k] -> [n, h]: the sum over the experts of each token. `places` as in
// ExpertRows.
Value combined(Context& context, const Value& rows, const Value& weights, const Tensor& places);

}  // namespace piton
