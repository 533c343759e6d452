// The peak FLOP/s of a GPU: what its library reaches in one large product.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "kernels/kernels.h"
#include "session/peak_meter.h"

namespace piton {

class DevicePeakMeter final : public PeakMeter {
 public:
  // `width`: of the three square matrices, which are allocated for the time of a measurement.
  DevicePeakMeter(Device& device, Kernels& kernels, std::int64_t width = 4096)
      : device_(device), kernels_(kernels), width_(width) {}

  // 0 where there is no memory for the matrices.
  double flops(DType dtype) override;
  double loading_flops(DType) override { return 0; }

 private:
  double measured_flops(DType dtype);

  Device& device_;
  Kernels& kernels_;
  std::int64_t width_;
};

}  // namespace piton
