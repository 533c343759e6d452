#include "comm/mpi/world.h"

#include "comm/mpi/transport.h"

namespace piton {

std::unique_ptr<World> make_mpi_world(Device& device, const RankOptions& options,
                                      const LaunchedJob& job) {
  return make_rank_world(device, make_mpi_transport(job), options);
}

}  // namespace piton
