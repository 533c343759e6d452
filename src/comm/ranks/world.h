// The ranks of a run, joined by a transport (transport.h), as a World.
//
// One communication thread per process calls the transport and executes every operation: the
// collectives of one group in the order of the calls; different groups and messages concurrently,
// so that none delays another. Between steps, and while it waits for ranks of the same host, it
// sleeps on a futex and never polls. Within a host, bytes move through shared memory; between
// hosts, by messages of the transport; a group with as many ranks on each of several hosts does
// both, so that bytes cross hosts once for each host (hierarchical_runner.h). Transports compute no
// sums: this code sums over the members of a group in order of world rank, independent of their
// hosts. So all transports give the same bits.
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
// Normally the destructor waits for all ranks and leaves the transport. During an exception, or
// after a failure, it informs the other ranks of its host at once (those of other hosts too, if the
// transport can), waits for nobody, and does not leave: the process must then end.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/ranks/transport.h"

namespace piton {

struct RankOptions {
  double timeout_seconds = 600;  // of one collective, message or signal, before Error(kPeer)
  int ranks_per_host = 0;        // treat each so many ranks of a host as on a separate one (tests)
};

// Collective over all ranks that `transport` joins. `device` holds the tensors of the collectives.
std::unique_ptr<World> make_rank_world(Device& device, std::unique_ptr<Transport> transport,
                                       const RankOptions& options);

// What this rank has really sent to ranks of other hosts, of collectives and messages. `world`: of
// make_rank_world().
std::int64_t bytes_between_hosts(const World& world);

}  // namespace piton
