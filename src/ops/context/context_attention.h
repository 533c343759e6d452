// Attention of rows whose keys are on several ranks. Each rank of the context axis has two
// stretches of each sample (comm/sequence_stretches.h); the result is that of one rank with all of
// them.
#pragma once

#include "ops/attention.h"
#include "ops/context/ring_attention.h"

namespace piton {

// Places of the rows of all ranks.
struct ContextPlaces {
  Tensor segments;          // kHeads: int32 [b, s] or empty
  StretchPlaces stretches;  // kRing
};

// Announces the exchanges of attend_over_ranks(). Collective over the group, once, before them.
void connect_members(const ContextGroup& group);

// q, k and v of this rank's rows, [b, s/c, heads, d] -> [b * s/c, a/t * d]. Under kHeads c must
// divide the heads of q and of k.
Value attend_over_ranks(Context& context, const AttentionRows& parts, const ContextPlaces& places,
                        const AttentionSettings& settings, const ContextGroup& group);

}  // namespace piton
