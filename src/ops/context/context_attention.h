// Attention of rows whose keys are on several ranks. Each rank of the context axis has two
// stretches of each sample (comm/sequence_stretches.h); the result is that of one rank with all of
// them.
//
// Ranks that exchange heads have, after it, the rows of all of them. If their ranks are neighbors,
// these rows are again two stretches of each sample: those of one of fewer ranks with longer ones.
#pragma once

#include "ops/attention.h"
#include "ops/context/context_group.h"
#include "ops/context/ring_attention.h"

namespace piton {

// Places of the rows that attention has after an exchange of heads, and of the keys that it sees.
struct ContextPlaces {
  AttentionPlaces rows;     // unless keys travel around
  StretchPlaces stretches;  // if they do
};

// Announces the exchanges of attend_over_ranks(). Collective over the group, once, before them.
void connect_members(const ContextGroup& group);

// q, k and v of this rank's rows, [b, s/c, heads, d] -> [b * s/c, a/t * d]. The ranks that exchange
// heads divide the heads of q and of k.
Value attend_over_ranks(Context& context, const AttentionRows& parts, const ContextPlaces& places,
                        const AttentionSettings& settings, const ContextGroup& group);

}  // namespace piton
