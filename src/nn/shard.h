// What every layer knows of the layout: the tensor-parallel group and how linears use it; and the
// records of parameters that are split or replicated in the usual ways.
#pragma once

#include <string>
#include <vector>

#include "ops/linear.h"
#include "ops/parameter.h"

namespace piton {

struct Shard {
  Communicator* group = nullptr;  // the tensor axis
  LinearStrategy strategy;
  DType dtype = DType::kF32;

  int size() const { return group->size(); }
  int rank() const { return group->rank(); }
  // With one rank there is nothing to split.
  bool splits_sequence() const { return strategy.sequence_parallel && size() > 1; }
  // The rows of the residual stream that this rank holds, for mask draws.
  MaskRows residual_rows(const MaskRows& whole, std::int64_t local_rows) const {
    MaskRows rows = whole;
    if (splits_sequence()) rows.first_row = rank() * local_rows;
    return rows;
  }
};

// One canonical matrix (or vector) of a tensor whose rows are split over the tensor axis: rank r
// holds rows r * out / t ... of each. Several of them, one after another, make a fused local
// tensor.
struct RowPart {
  std::string name;
  std::int64_t out = 0;  // unsplit
};

// Local [sum of out / t, in], or [sum of out / t] for in = 0.
Parameter row_split_parameter(const Shard& shard, std::string name,
                              const std::vector<RowPart>& parts, std::int64_t in,
                              Initialization initialization);
// Local [out, in / t].
Parameter column_split_parameter(const Shard& shard, std::string name, std::int64_t out,
                                 std::int64_t in, Initialization initialization);
// Local = global, a vector [size] or matrix [size, in]; its gradient is partial over tensor ranks
// that hold different tokens.
Parameter replicated_parameter(const Shard& shard, std::string name, std::int64_t size,
                               std::int64_t in, Initialization initialization);
// The token table [padded / t, in]: rows beyond `vocabulary` are padding and belong to no piece.
Parameter vocabulary_parameter(const Shard& shard, std::string name, std::int64_t vocabulary,
                               std::int64_t padded, std::int64_t in, Initialization initialization);

}  // namespace piton
