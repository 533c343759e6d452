// Ring attention (Liu et al. 2023, arXiv:2310.01889) over balanced halves of the sequence: keys and
// values travel around the ranks, and each rank attends from its rows to those that it has at the
// moment. Parts are joined by their log-sum-exp in fp32 (kernels/attention_merge.h).
//
// In backward keys and values travel again, and with them their gradients, in fp32, to which each
// rank adds its own; after the last rank they reach their owner.
//
// For c ranks, b samples, s tokens and g heads of keys of size d, a rank sends 2 b s/c g d (c - 1)
// elements in forward and again in backward, and 2 b s/c g d c of gradients. Keys travel
// while those before them are attended to. Of the pairs of stretches that a causal mask hides none
// is computed, and each rank has 2 c + 1 of them.
#pragma once

#include "comm/communicator.h"
#include "ops/attention.h"

namespace piton {

// Of the rows of all ranks, int32 [2 c, b, n], n rows of each stretch.
struct StretchPlaces {
  Tensor positions;  // of the rows in their samples
  Tensor segments;   // or empty
};

// q, k and v of this rank's rows, [b, 2 n, heads, d]: of its two stretches, one after the other ->
// [b * 2 n, a/t * d]. With dropout, n is a multiple of 4. block_rows of the settings is ignored.
Value ring_attention(Context& context, const AttentionRows& parts, const StretchPlaces& places,
                     const AttentionSettings& settings, Communicator& ring);

// To whom a member of a ring sends, and from whom it receives.
inline int next_in_ring(const Communicator& ring) { return (ring.rank() + 1) % ring.size(); }
inline int before_in_ring(const Communicator& ring) {
  return (ring.rank() + ring.size() - 1) % ring.size();
}

}  // namespace piton
