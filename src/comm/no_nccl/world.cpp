// Replaces comm/nccl in builds without CUDA.
#include "comm/nccl/world.h"

#include "base/error.h"

namespace piton {

std::unique_ptr<World> make_nccl_world(Device& device, const NcclOptions& options) {
  throw Error(Fault::kUsage,
              "--kernels cuda: this build has no NCCL for the {} ranks of {}; configure with the "
              "cuda preset",
              options.place.size, device.name());
}

std::string nccl_obstacle() { return ""; }

}  // namespace piton
