// Ranks started by mpirun, as a World.
//
// One communication thread a process makes every MPI call and runs every collective in the order in
// which it was asked for; between jobs, and while it waits for ranks of its own host, it sleeps on a
// futex and never polls. Within a host, bytes move through MPI-3 shared windows; between hosts, by
// MPI messages. All sums are our own (comm/communicator.h).
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace piton {

struct MpiOptions {
  double timeout_seconds = 600;      // of one collective, before Error(kPeer)
  bool force_messages = false;       // treat every rank as on a host of its own (tests)
};

// Collective over all processes of the mpirun; a process started alone is a world of one rank. The
// destructor finalises MPI. `device` is where the tensors of the collectives live.
std::unique_ptr<World> make_mpi_world(Device& device, const MpiOptions& options);

}  // namespace piton
