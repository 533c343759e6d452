// Every call on a device whose memory the host cannot touch and whose work runs late.
#include <gtest/gtest.h>

#include "call_cases.h"
#include "call_runner.h"
#include "kernels/reference/kernels.h"
#include "support/compare.h"
#include "support/delayed_device.h"
#include "support/delayed_kernels.h"

namespace piton::test {
namespace {

TEST(DelayedDevice, GivesEveryCallTheResultOfTheHost) {
  const auto reference = make_reference_kernels();
  DelayedDevice device(/*seed=*/7, /*max_delay_us=*/20);
  DelayedKernels kernels(*reference, device);
  CallRunner runner(kernels, device);
  for (const CallCase& call_case :
       call_cases({.dtype = DType::kF32, .awkward = true, .row_tile = 4})) {
    EXPECT_TRUE(same_bits(runner.run(call_case.call), run_reference(call_case.call)))
        << call_case.name;
  }
}

// Two streams; the second adds what the first copies. All of `wait` decides whether it may.
Tensor copied_and_added(bool wait) {
  const auto reference = make_reference_kernels();
  DelayedDevice device(/*seed=*/3, /*max_delay_us=*/20'000);
  DelayedKernels kernels(*reference, device);
  Arena arena(device, 1 << 16);
  const Shape shape{64};
  const auto make = [&] { return arena.allocate(DType::kF32, shape, MemoryKind::kWorkspace); };
  const Tensor source = make();
  const Tensor middle = make();
  const Tensor sum = make();
  const auto first = device.make_stream();
  const auto second = device.make_stream();
  const Tensor ones = tensor_of(DType::kF32, shape, std::vector<double>(64, 1));
  device.upload(ones.raw(), source, *second);
  device.upload(ones.raw(), source, *first);
  // A long queue before the copy: without the wait the sum is made first, whatever the delays are.
  for (int i = 0; i < 20; ++i) kernels.run(Copy{.dst = source, .src = source}, *first);
  kernels.run(Copy{.dst = middle, .src = source}, *first);
  if (wait) second->wait(first->record());
  kernels.run(Add{.y = sum, .a = middle, .b = middle}, *second);
  const Tensor result = host_tensor(DType::kF32, shape);
  device.download(sum, result.raw(), *second);
  first->synchronize();
  return result;
}

TEST(DelayedDevice, ShowsAMissingWaitAsNan) {
  for (const double value : values(copied_and_added(/*wait=*/true))) EXPECT_EQ(value, 2);
  for (const double value : values(copied_and_added(/*wait=*/false)))
    EXPECT_TRUE(std::isnan(value));
}

TEST(DelayedDeviceDeathTest, FaultsWhereHostCodeReadsItsMemory) {
  DelayedDevice device(1);
  Arena arena(device, 1 << 16);
  const Tensor tensor = arena.allocate(DType::kF32, {4}, MemoryKind::kWorkspace);
  EXPECT_DEATH(std::printf("%f", tensor.data<float>()[0]), "");
}

TEST(DelayedDeviceDeathTest, AssertsThatNoHostTensorSlipsIntoACall) {
  const auto reference = make_reference_kernels();
  DelayedDevice device(1);
  DelayedKernels kernels(*reference, device);
  const auto stream = device.make_stream();
  const Tensor host = host_tensor(DType::kF32, {4});
  EXPECT_DEATH(kernels.run(Copy{.dst = host, .src = host}, *stream), "dst is not on the");
}

}  // namespace
}  // namespace piton::test
