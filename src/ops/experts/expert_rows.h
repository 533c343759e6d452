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

// How many of the n tokens and of the r rows count, where the host knows it; the others are room.
struct CountedRows {
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
};

// The rows of these experts for tokens with these choices, int32 [n, k], of which an expert has at
// most `most`. `used`: which tokens count, and have places; null: all.
ExpertRows sorted_rows(Context& context, const Tensor& choices, const ExpertRange& experts,
                       std::int64_t most, const CountedRows* used = nullptr);

// x [n, h] -> [r, h]: a copy of each token for each of its experts, sorted by expert. For
// backward nothing is kept but `rows`; what later ops keep of the result is copied again from x.
// `used`: what counts; null: all tokens, and the rows that `rows` says.
Value dispatched(Context& context, const Value& x, const ExpertRows& rows,
                 const CountedRows* used = nullptr);

// x [n, h], weights [n, 1] -> [n, h]: each row times its weight.
Value weighted(Context& context, const Value& x, const Value& weights);

// rows [r, h] -> [n, h]: the sum over the experts of each token, whose weights are 1. `used`
// as above.
Value summed(Context& context, const Value& rows, const ExpertRows& sorted,
             const CountedRows* used = nullptr);

// rows [r, h], weights [n, k] -> [n, h]: the sum over the experts of each token. `places` as in
// ExpertRows; `used` as above.
Value combined(Context& context, const Value& rows, const Value& weights, const Tensor& places,
               const CountedRows* used = nullptr);

}  // namespace piton
