// Ranks started by mpirun, as a World.
//
// One communication thread a process makes every MPI call and carries out every operation: the
// collectives of one group in the order in which they were asked for, different groups and messages
// side by side, so that none of them holds up another. Between steps, and while it waits for ranks
// of its own host, it sleeps on a futex and never polls. Within a host, bytes move through MPI-3
// shared windows; between hosts, by MPI messages. All sums are our own: over the members of a group
// in order of world rank, whatever hosts they are on.
//
// TrafficCounts: an all-reduce counts the slices that go to their owners and the own sum that goes
// to the others; a gather the own part times the others; a scatter all but the own part; a
// broadcast the root's bytes times the others; a message its bytes, at the sender, unless it is to
// oneself. gather_bytes, barrier and groups of one count nothing.
//
// Making a group and allocating symmetric memory are collective and block the communication thread:
// do it in set-up, before messages are under way. Groups and their memory must be gone before the
// world. After any Error(kPeer) the world is of no further use but for abort().
//
// A world that is destroyed in order waits for all ranks and finalizes MPI. One that is destroyed
// by an exception, or after a failure, tells the other ranks of its host at once, waits for nobody,
// and leaves MPI as it is: the process must then end.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/mpi/job_record.h"

namespace piton {

struct MpiOptions {
  LaunchedJob job = {};          // whose files are removed if it is killed; none: they are not
  double timeout_seconds = 600;  // of one collective, message or signal, before Error(kPeer)
  bool force_messages = false;   // treat every rank as on a host of its own (tests)
};

// Collective over all processes of the mpirun; a process started alone is a world of one rank. The
// destructor finalizes MPI. `device` is where the tensors of the collectives live.
std::unique_ptr<World> make_mpi_world(Device& device, const MpiOptions& options);

}  // namespace piton
