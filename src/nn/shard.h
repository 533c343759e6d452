// The part of the layout that layers depend on: the tensor-parallel group and how linears use it,
// and the group that experts are divided over. Also functions that describe parameters split or
// replicated over this group.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/context/context_group.h"
#include "ops/linear/linear.h"
#include "ops/parameter.h"

namespace piton {

struct Shard {
  Communicator* group = nullptr;    // of the tensor axis
  Communicator* experts = nullptr;  // of the expert axis; only ExpertMlp needs it
  Communicator* alone = nullptr;    // of this rank; only LatentAttention needs it
  // Where the host reads how many rows expert ranks send each other, of those that are of use there
  // (ops/experts/row_exchange.h). Null: they gather all rows.
  std::shared_ptr<Stream> row_counts;
  LinearStrategy strategy;
  SharedRows* shared = nullptr;  // of the tensor axis, for fused linears; null: there are none
  DType dtype = DType::kF32;
  Float8Products float8 = {};  // of the linears of this layer
  ContextGroup context;  // rows of a sample are divided over it; linears and norms do not see it

  int size() const { return group->size(); }
  int rank() const { return group->rank(); }
  // Whether the rows of the residual stream are split over the tensor ranks.
  bool splits_sequence() const { return strategy.sequence_parallel && size() > 1; }
  // Which rows of the residual stream this rank holds, for drawing dropout masks. `whole`: the rows
  // of the micro-batch; `local_rows`: how many of them this rank has.
  MaskRows residual_rows(const MaskRows& whole, std::int64_t local_rows) const {
    MaskRows rows = whole;
    if (splits_sequence()) rows.first_row = rank() * local_rows;
    return rows;
  }
};

struct Vocabulary {
  std::int64_t size = 0;    // V, ids without padding
  std::int64_t padded = 0;  // rows of the table on all tensor ranks together

  // The first id of this rank's rows.
  std::int64_t begin(const Shard& shard) const { return shard.rank() * (padded / shard.size()); }
  // How many of this rank's rows are ids, not padding.
  std::int64_t valid(const Shard& shard) const;
};

// A canonical matrix (or vector) whose rows are split over the tensor axis: rank r holds rows
// r * out / t .. (r + 1) * out / t - 1. A fused local tensor has several of them, one after
// another.
struct RowPart {
  std::string name;
  std::int64_t out = 0;  // rows of the whole matrix
};

// A parameter with the local shape [sum of out / t, in], or [sum of out / t] if `in` is 0.
Parameter row_split_parameter(const Shard& shard, std::string name,
                              const std::vector<RowPart>& parts, std::int64_t in,
                              Initialization initialization);
// The same with all rows on every tensor rank, for heads that this rank alone has: each rank has a
// part of the gradient.
Parameter shared_parameter(const Shard& shard, std::string name, const std::vector<RowPart>& parts,
                           std::int64_t in, Initialization initialization);
// A parameter with the local shape [out, in / t]: the columns are split.
Parameter column_split_parameter(const Shard& shard, std::string name, std::int64_t out,
                                 std::int64_t in, Initialization initialization);
// A parameter that every tensor rank holds whole: [size, in], or [size] if `in` is 0. Under
// sequence parallelism its gradient is summed over the tensor ranks, which hold different tokens.
Parameter replicated_parameter(const Shard& shard, std::string name, std::int64_t size,
                               std::int64_t in, Initialization initialization);
// One parameter of several matrices of equal shape and placement, one after another: of experts.
Parameter stacked(std::string name, const std::vector<Parameter>& matrices);
// Says that the parameter is on each of `stages` (ascending), over which its gradient is summed.
// With one of them it stays as it is.
void tie_over_stages(Parameter& parameter, const std::vector<int>& stages);
// A table of tokens with the local shape [padded / t, in], or one number for each token, [padded /
// t], if `in` is 0. Rows from vocabulary.size on are padding and belong to no piece.
Parameter vocabulary_parameter(const Shard& shard, std::string name, const Vocabulary& vocabulary,
                               std::int64_t in, Initialization initialization);

}  // namespace piton
