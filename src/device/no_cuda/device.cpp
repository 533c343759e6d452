// Replaces device/cuda in builds without CUDA: there are no devices, and make_device() reports
// why.
#include "device/cuda/device.h"

#include "base/error.h"

namespace piton::cuda {

bool is_built() { return false; }

int cuda_devices() { return 0; }

std::string driver_obstacle() { return ""; }

std::unique_ptr<Device> make_device(int) {
  throw Error(
      Fault::kUsage,
      "--kernels cuda: this build has no CUDA back end; configure with the cuda preset, or use "
      "--kernels cpu");
}

}  // namespace piton::cuda
