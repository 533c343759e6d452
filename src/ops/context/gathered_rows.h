// The rows of all ranks, gathered: of keys and values, so that a rank attends from its own rows to
// those of whole samples (Grattafiori et al. 2024, arXiv:2407.21783, section 3.3.2).
//
// For c ranks, b samples, s tokens and tensors of g heads of size d, a rank sends b s/c g d (c - 1)
// elements of each tensor in forward. With a tape the result is not kept: backward gathers again,
// and sends as many elements of gradients, in fp32, whose sums are rounded once.
//
// Heads can travel in slices, so that some travel while attention to others is computed. In
// backward the last slice comes first, and the one before it is gathered again meanwhile.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "ops/context/member_blocks.h"
#include "ops/row_ranges.h"
#include "ops/under_way.h"

namespace piton {

class Communicator;

// This rank's rows of each sample [b, s/c, g, d], its two stretches, any strides but the last ->
// the rows of all ranks [b, s, g, d], in the order of the sequence. One collective of each slice
// for all tensors, which have one shape and dtype.
class GatheredRows {
 public:
  GatheredRows(std::vector<Value> rows, Communicator& ranks);
  // Slices of the heads one after another, each once.
  void start(Context& context, const RowRange& heads);
  // Waits for the first slice that is under way, of n heads: [b, s, n, d].
  std::vector<Value> next(Context& context);

 private:
  class Again;
  struct Slice {
    std::int64_t number;
    TravelingBlocks there;
    std::shared_ptr<std::optional<TravelingBlocks>> back;  // its gradient, on its way
  };
  std::vector<Value> rows_;
  Communicator& ranks_;
  std::shared_ptr<GradientsInParts> gradients_;  // of the rows; null before the first slice
  std::shared_ptr<Again> again_;
  std::deque<Slice> slices_;
  std::int64_t started_ = 0;
};

}  // namespace piton
