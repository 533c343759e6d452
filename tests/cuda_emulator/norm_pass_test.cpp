// The backward of a norm in one pass: teams of all sizes, and rows that are too long for it.
#include <gtest/gtest.h>

#include "cuda_emulator/guarded_kernels.h"
#include "device/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "ops/call_runner.h"
#include "support/tensors.h"

namespace piton::cuda {
namespace {

NormBackward backward(DType dtype, DType stream, std::int64_t n, std::int64_t h, bool layer) {
  test::TensorSource source(9, /*awkward=*/false);
  return {.dx = source.unwritten(stream, {n, h}),
          .dgain = source.normal(DType::kF32, {h}),
          .dbias = layer ? source.normal(DType::kF32, {h}) : Tensor(),
          .dy = source.normal(dtype, {n, h}),
          .dresidual = layer ? source.normal(stream, {n, h}) : Tensor(),
          .x = source.normal(stream, {n, h}),
          .gain = source.normal(dtype, {h}, 1, 0.2),
          .mean = layer ? source.normal(DType::kF32, {n}, 0, 0.1) : Tensor(),
          .rstd = source.normal(DType::kF32, {n}, 1, 0.1)};
}

class EmulatedNormPass : public testing::Test {
 protected:
  // `launches`: of all kernels.
  void expect_agreement(const NormBackward& call, std::uint32_t launches) {
    const std::uint32_t before = emulator::running_thread.moment.launch;
    const KernelCall here = runner_.run(call);
    EXPECT_EQ(emulator::running_thread.moment.launch - before, launches);
    EXPECT_TRUE(agrees({.name = fmt::format("{} x {}", call.x.dim(0), call.x.dim(1)),
                        .call = call,
                        .terms = std::max(call.x.dim(0), call.x.dim(1))},
                       runner_));
    EXPECT_TRUE(test::same_bits(runner_.run(call), here));
    KernelCall elsewhere = call;  // where vectors do not fit
    for_each_tensor(elsewhere, [&](std::string_view, Tensor& tensor, Access) {
      const Tensor block = host_tensor(tensor.dtype(), {tensor.elements() + 1});
      const Tensor copy = block.slice(0, 1, tensor.elements()).reshape(tensor.shape());
      test::assign(copy, test::values(tensor));
      tensor = copy;
    });
    EXPECT_TRUE(test::same_bits(runner_.run(elsewhere), here)) << call.x.dim(1);
  }

  std::unique_ptr<Device> device_ = make_device();
  std::unique_ptr<Kernels> kernels_ = make_kernels(*device_);
  emulator::GuardedKernels guarded_{*kernels_};
  test::CallRunner runner_{guarded_, *device_};
};

// A launch for dx and the sums of chunks, and one that adds the chunks.
TEST_F(EmulatedNormPass, HasTheGradientsOfTheReference) {
  for (const std::int64_t h : {24, 256, 264, 1001, 1032, 2056, 4096}) {
    expect_agreement(backward(DType::kBF16, DType::kBF16, 37, h, h % 16 == 8), 2);
  }
  for (const std::int64_t h : {3, 132, 516, 1028, 2048}) {
    expect_agreement(backward(DType::kF32, DType::kF32, 21, h, h % 8 == 4), 2);
    expect_agreement(backward(DType::kF16, DType::kF32, 5, h, h % 8 != 4), 2);
  }
  expect_agreement(backward(DType::kF32, DType::kF32, 8200, 4, true), 2);  // longer chunks
}

// A pass for the sums, which are one chunk, and one for dx.
TEST_F(EmulatedNormPass, IsNotForLongRows) {
  expect_agreement(backward(DType::kBF16, DType::kBF16, 5, 4104, true), 2);
  NormBackward frozen = backward(DType::kBF16, DType::kBF16, 5, 768, false);
  frozen.dgain = Tensor();
  expect_agreement(frozen, 1);
}

}  // namespace
}  // namespace piton::cuda
