// The rows of all ranks, gathered: of keys and values, so that a rank attends from its own rows to
// those of whole samples (Grattafiori et al. 2024, arXiv:2407.21783, section 3.3.2).
//
// For c ranks, b samples, s tokens and tensors of g heads of size d, a rank sends b s/c g d (c - 1)
// elements of each tensor in forward. With a tape the result is not kept: backward gathers again,
// and sends as many elements of gradients, in fp32, whose sums are rounded once.
#pragma once

#include <vector>

#include "ops/tape.h"

namespace piton {

class Communicator;

// This rank's rows of each sample [b, s/c, g, d], its two stretches, any strides but the last ->
// the rows of all ranks [b, s, g, d], in the order of the sequence. One collective for all tensors,
// which have one dtype.
std::vector<Value> gathered_rows(Context& context, const std::vector<Value>& rows,
                                 Communicator& ranks);

}  // namespace piton
