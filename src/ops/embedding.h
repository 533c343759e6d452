// Token and position embeddings; the token table is split over the vocabulary.
#pragma once

#include "comm/communicator.h"
#include "ops/tape.h"

namespace piton {

// A table of tokens that is split over the ranks of `group`.
struct SplitTable {
  Parameter& table;                   // [V/t, h]
  std::int64_t vocabulary_begin = 0;  // id of this rank's first row
  Communicator& group;
  bool sequence_parallel = false;
};

// Looks up ids, int32 [n]. Ids of other ranks give zeros, and the results are summed over the
// group: y [n, h], all-reduced. With sequence parallelism y is this rank's [n/t, h],
// reduce-scattered.
Value token_embedding(Context& context, const Tensor& ids, const SplitTable& split);

// x + table[ids], for x [n, h], ids int32 [n] and a table of positions or of types [rows, h]. Works
// in place: the result has the memory of x.
Value add_position_embedding(Context& context, const Value& x, const Tensor& ids, Parameter& table);

}  // namespace piton
