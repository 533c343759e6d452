// Ranks started by mpirun, as a World (comm/ranks/world.h).
#pragma once

#include <memory>

#include "comm/mpi/job_record.h"
#include "comm/ranks/world.h"

namespace piton {

// Collective over all processes of the mpirun; a process started alone is a world of one rank. The
// destructor finalizes MPI. `job`: its files are removed if it is killed; empty: none are.
std::unique_ptr<World> make_mpi_world(Device& device, const RankOptions& options,
                                      const LaunchedJob& job = {});

}  // namespace piton
