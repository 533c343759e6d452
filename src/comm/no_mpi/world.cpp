// Replaces comm/mpi in builds without MPI.
#include "comm/mpi/world.h"

#include "base/error.h"
#include "comm/mpi/library.h"

namespace piton {

std::unique_ptr<World> make_mpi_world(Device& device, const RankOptions&, const LaunchedJob&) {
  throw Error(Fault::kUsage,
              "ranks: this build has no MPI to join ranks on {}; start them by piton launch, or "
              "configure with -DPITON_MPI=ON",
              device.name());
}

std::string mpi_library() { return ""; }

}  // namespace piton
