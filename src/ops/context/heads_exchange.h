// All-to-all around attention: before it, a rank gives away parts of its heads and gets the rows of
// the other ranks; after it, the reverse (Jacobs et al. 2023, arXiv:2309.14509).
//
// For u ranks with r rows of each of b samples and H heads of size d, a rank sends
// b r H d (u - 1) / u elements of each tensor.
#pragma once

#include <vector>

#include "ops/tape.h"

namespace piton {

class Communicator;

// This rank's rows of each sample [b, r, H, d], any H that u divides and any strides but the
// last -> the rows of all ranks, of this rank's heads [b, u r, H/u, d], in the order of the
// sequence. One collective for all tensors, which have one b, r, d and dtype.
std::vector<Value> whole_sequences(Context& context, const std::vector<Value>& rows,
                                   Communicator& ranks);

// The reverse for one tensor: [b, u r, H/u, d], contiguous -> [b, r, H, d], contiguous.
Value own_rows(Context& context, const Value& sequences, Communicator& ranks);

}  // namespace piton
