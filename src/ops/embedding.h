// Token and position embeddings; the token table is split over the vocabulary.
#pragma once

#include "comm/communicator.h"
#include "ops/tape.h"

namespace piton {

// y [n, h] = sum over the group of this rank's rows; with sequence parallelism [n/t, h],
// reduce-scattered. vocabulary_begin: first id of this rank's rows.
Value token_embedding(Context& context, const Tensor& ids, Parameter& table,
                      std::int64_t vocabulary_begin, Communicator& group, bool sequence_parallel);

// x + table[ids], ids int32 [rows of x]. Takes the memory of x over.
Value add_position_embedding(Context& context, const Value& x, const Tensor& ids, Parameter& table);

}  // namespace piton
