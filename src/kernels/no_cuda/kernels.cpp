// Replaces kernels/cuda in builds without CUDA.
#include "kernels/cuda/kernels.h"

#include "base/error.h"

namespace piton::cuda {

std::unique_ptr<Kernels> make_kernels(Device& device) {
  throw Error(
      Fault::kUsage,
      "--kernels cuda: this build has no CUDA back end for {}; configure with the cuda preset",
      device.name());
}

std::string library_obstacle() { return ""; }

}  // namespace piton::cuda
