// In the place of kernels/cuda where it is not built: there is no device, and asking for one says
// why.
#include "kernels/cuda/device.h"

#include "base/error.h"

namespace piton::cuda {

bool is_built() { return false; }

int cuda_devices() { return 0; }

std::unique_ptr<Device> make_device(int) {
  throw Error(
      Fault::kUsage,
      "--kernels cuda: this build has no CUDA back end; configure with the cuda preset, or use "
      "--kernels cpu");
}

}  // namespace piton::cuda
