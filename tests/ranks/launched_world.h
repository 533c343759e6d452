// The world of a rank test: of MPI under mpirun (tools/launch.sh), of sockets under piton launch.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "comm/mpi/world.h"
#include "comm/sockets/world.h"

namespace piton::ranks {

// The number in variable `name` of the environment.
inline int number_in(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::stoi(text) : 0;
}

inline bool under_mpirun() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

// Known before the ranks meet.
inline int launched_ranks() {
  return number_in(under_mpirun() ? "OMPI_COMM_WORLD_SIZE" : "WORLD_SIZE");
}

inline std::unique_ptr<World> make_launched_world(Device& device, const RankOptions& options) {
  if (under_mpirun()) return make_mpi_world(device, options);
  return make_socket_world(device, options,
                           {.port = number_in("MASTER_PORT"),
                            .rank = number_in("RANK"),
                            .size = number_in("WORLD_SIZE")});
}

}  // namespace piton::ranks
