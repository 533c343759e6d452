// Memory shared by the ranks of a host, without a name in any file system.
#pragma once

#include <memory>
#include <vector>

#include "comm/ranks/shared_window.h"
#include "comm/rendezvous/rendezvous.h"

namespace piton {

// Collective over `world_ranks`, all on one machine (machine.h). Each makes a segment, and maps
// those of the others through /proc.
std::unique_ptr<SharedWindow> share_memory(Rendezvous& rendezvous,
                                           const std::vector<int>& world_ranks,
                                           std::int64_t segment_bytes);

}  // namespace piton
