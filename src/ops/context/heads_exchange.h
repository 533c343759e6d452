// All-to-all around attention: before it, a rank gives away parts of its heads and gets the rows of
// the other ranks; after it, the reverse (Jacobs et al. 2023, arXiv:2309.14509).
//
// For c ranks, b samples, s tokens and H heads of size d, a rank sends b s H d (c - 1) / c^2
// elements of each tensor.
#pragma once

#include <vector>

#include "ops/context/context_group.h"
#include "ops/tape.h"

namespace piton {

// This rank's rows of each sample [b, s/c, H, d], any H that c divides and any strides but the
// last -> all rows of this rank's heads [b, s, H/c, d], in the order of the sequence. One
// collective for all tensors, which have one b, s, d and dtype.
std::vector<Value> whole_sequences(Context& context, const std::vector<Value>& rows,
                                   const ContextGroup& group);

// The reverse for one tensor: [b, s, H/c, d], contiguous -> [b, s/c, H, d], contiguous.
Value own_rows(Context& context, const Value& sequences, const ContextGroup& group);

}  // namespace piton
