// The ends of a part of a branch whose products are split over ranks, where these are not linears
// with their collectives in them (linear.h): all rows at its beginning, the sum over the ranks at
// its end. Of a group of one, both give back the value. Tensor ranks have the same rows, or under
// sequence parallelism each its part of them; ranks of the expert axis have different rows.
#pragma once

#include "comm/communicator.h"
#include "ops/under_way.h"

namespace piton {

// The rows of all ranks: x [n, h], or with `splits` this rank's [n/t, h] -> [n, h]. Each rank has a
// summand of the gradient; backward adds them up.
Value rows_of_ranks(Context& context, const Value& x, Communicator& group, bool splits);
UnderWay start_rows_of_ranks(Context& context, const Value& x, Communicator& group, bool splits);

// The sum over the ranks of x [n, h] -> [n, h], or with `splits` this rank's [n/t, h]. x is
// overwritten.
Value sum_over_ranks(Context& context, const Value& x, Communicator& group, bool splits);
UnderWay start_sum_over_ranks(Context& context, const Value& x, Communicator& group, bool splits);

}  // namespace piton
