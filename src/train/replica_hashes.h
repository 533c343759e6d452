// --check-weight-hash-across-dp-replicas-interval: data-parallel ranks hold the same weights, to
// the bit. Where they do not, the memory or a processor of a rank is faulty.
#pragma once

#include <cstdint>

#include "session/machine.h"
#include "session/session.h"

namespace piton {

// Reads all weights of this rank and compares their hashes with those of its replicas, the other
// ranks of the data axis. Collective. Throws Error(kData) on all of them that names the iteration,
// the first weight that differs and its rank: the one whose hash the fewest ranks have, and of two
// the second. Not for ZeRO-3, where each rank holds other elements.
void check_replica_hashes(Session& session, Mesh& mesh, const Machine& machine,
                          std::int64_t iteration);

}  // namespace piton
