// Recomputation (Chen et al. 2016, arXiv:1604.06174): keeps only the inputs of a segment, frees its
// activations, and runs the segment again in backward. Dropout masks are drawn from coordinates, so
// the replay draws the same ones.
#pragma once

#include <functional>
#include <vector>

#include "ops/tape.h"

namespace piton {

using Segment = std::function<std::vector<Value>(Context&, const std::vector<Value>& inputs)>;

// Runs `segment` without a tape, and records one node that replays it. Returns the outputs of
// `segment`, in their shapes. If `context` has no tape, only runs `segment`.
std::vector<Value> recomputed(Context& context, const std::vector<Value>& inputs, Segment segment);

}  // namespace piton
