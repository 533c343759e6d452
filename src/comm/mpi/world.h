// Ranks started by mpirun, as a World.
//
// One communication thread per process makes every MPI call and executes every operation: the
// collectives of one group in the order of the calls; different groups and messages concurrently,
// so that none delays another. Between steps, and while it waits for ranks of the same host, it
// sleeps on a futex and never polls. Within a host, bytes move through MPI-3 shared windows;
// between hosts, by MPI messages; a group with as many ranks on each of several hosts does both, so
// that bytes cross hosts once for each host (hierarchical_runner.h). MPI computes no sums: this
// code sums over the members of a group in order of world rank, independent of their hosts.
//
// TrafficCounts, for n members: an all-reduce counts the slices sent to their owners, and the own
// sum sent to the n - 1 others; a gather counts the own part times n - 1; a scatter all parts but
// the own; a broadcast the root's bytes times n - 1; a message its bytes at the sender, unless the
// receiver is the sender. gather_bytes, barrier and groups of one count nothing. These are the
// counts of messages from each rank to each other one, whatever moves the bytes.
//
// Making a group and allocating symmetric memory are collective and block the communication thread:
// do it during setup, before messages are pending. Destroy groups and their memory before the
// world. After any Error(kPeer) only abort() of the world may be used.
//
// Normally the destructor waits for all ranks and finalizes MPI. During an exception, or after a
// failure, it informs the other ranks of its host at once, waits for nobody, and does not finalize
// MPI: the process must then end.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/mpi/job_record.h"

namespace piton {

struct MpiOptions {
  LaunchedJob job = {};          // job whose files are removed if it is killed; empty: none are
  double timeout_seconds = 600;  // of one collective, message or signal, before Error(kPeer)
  int ranks_per_host = 0;        // treat each so many ranks of a host as on a separate one (tests)
};

// Collective over all processes of the mpirun; a process started alone is a world of one rank. The
// destructor finalizes MPI. `device` holds the tensors of the collectives.
std::unique_ptr<World> make_mpi_world(Device& device, const MpiOptions& options);

// What this rank has really sent to ranks of other hosts, of collectives and messages. `world`: of
// make_mpi_world().
std::int64_t bytes_between_hosts(const World& world);

}  // namespace piton
