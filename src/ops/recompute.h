// Recomputation (Chen et al. 2016, arXiv:1604.06174): keep a segment's inputs, drop what it made,
// and run it again when its gradient comes. Masks are drawn from coordinates, so the replay draws
// the same ones.
#pragma once

#include <functional>
#include <vector>

#include "ops/tape.h"

namespace piton {

using Segment = std::function<std::vector<Value>(Context&, const std::vector<Value>& inputs)>;

// Runs `segment` without a tape and records one node. Without a tape in `context` it is segment().
std::vector<Value> recomputed(Context& context, const std::vector<Value>& inputs, Segment segment);

}  // namespace piton
