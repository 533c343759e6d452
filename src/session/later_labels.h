// Micro-batches as layers that predict later tokens read them (nn/later_tokens.h).
#pragma once

#include "data/samples/batch.h"

namespace piton {

// Each row has token, position, label and weight of the next row of its sample, within its segment.
// The last rows have token and position 0, no label and weight 0, as in Megatron-core.
MicroBatch moved_by_one(const MicroBatch& batch);

}  // namespace piton
