// Calls that do in one kernel what several others do have the bits of these.
#include <gtest/gtest.h>

#include "cuda_emulator/guarded_kernels.h"
#include "device/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/linear/few_row_product.h"
#include "ops/decoding_cases.h"

namespace piton::cuda {
namespace {

TEST(FusedCalls, HaveTheBitsOfSeparateOnes) {
  const auto device = make_device();
  const auto kernels = make_kernels(*device);
  emulator::GuardedKernels guarded(*kernels);
  test::CallRunner runner(guarded, *device);
  int few_rows = 0;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool awkward : {false, true}) {
      for (const test::CallCase& one : test::decoding_cases(
               {.dtype = dtype, .awkward = awkward, .codes = dtype != DType::kF64})) {
        EXPECT_TRUE(test::same_bits(runner.run(one.call), test::run_in_parts(one.call, runner)))
            << one.name << ", awkward " << awkward;
        const auto* gated = std::get_if<GatedLinear>(&one.call);
        few_rows += gated != nullptr && has_few_rows(*gated) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(few_rows, 20) << "products with the activation in their end";
}

}  // namespace
}  // namespace piton::cuda
