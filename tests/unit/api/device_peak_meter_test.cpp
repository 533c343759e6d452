// The peak of a device, by one product. Its value can only be judged on a GPU.
#include "api/device_peak_meter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"

namespace piton {
namespace {

TEST(DevicePeakMeter, MeasuresAProductOfEachType) {
  HostDevice device;
  const auto kernels = make_reference_kernels();
  DevicePeakMeter meter(device, *kernels, 16);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    EXPECT_GT(meter.flops(dtype), 0);
    EXPECT_TRUE(std::isfinite(meter.flops(dtype)));
  }
  EXPECT_EQ(meter.loading_flops(DType::kF32), 0);
}

TEST(DevicePeakMeter, MeasuresNothingWithoutMemory) {
  HostDevice device("host", 1024);
  const auto kernels = make_reference_kernels();
  EXPECT_EQ(DevicePeakMeter(device, *kernels, 16).flops(DType::kBF16), 0);
}

}  // namespace
}  // namespace piton
