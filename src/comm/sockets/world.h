// Ranks without MPI, as a World (comm/ranks/world.h): whoever starts the processes, they meet at a
// port of rank 0 (comm/rendezvous). Ranks of a host share memory; hosts exchange messages over TCP.
//
// Needs no library and no launcher, and leaves nothing behind: shared memory has no name, so it is
// gone with the last process that uses it, however that ends. It does not count as /dev/shm.
#pragma once

#include <memory>

#include "comm/ranks/world.h"
#include "comm/rendezvous/meeting_place.h"

namespace piton {

// Collective over all ranks of `place`. Throws what Rendezvous throws. As MPI's world, it sends
// without encryption: use it in a network where only the run's users reach these hosts.
std::unique_ptr<World> make_socket_world(Device& device, const RankOptions& options,
                                         const MeetingPlace& place);

}  // namespace piton
