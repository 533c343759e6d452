#include "ops/activation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "support/tensors.h"

namespace piton {
namespace {

TEST(Tanh, HasItsValuesAndGradientsInEveryType) {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kF64, 1e-14}, {DType::kF32, 1e-6}, {DType::kBF16, 1e-2}}) {
    HostDevice device;
    Arena arena{device};
    const std::unique_ptr<Stream> stream = device.make_stream();
    const std::unique_ptr<Kernels> kernels = make_reference_kernels();
    ResidentWeights weights{*kernels, arena};
    Tape tape;
    Context context{.kernels = *kernels,
                    .stream = *stream,
                    .device = device,
                    .arena = arena,
                    .weights = weights,
                    .tape = &tape};
    const Tensor rows = context.activation(dtype, {2, 3});
    const double given[] = {-2, -0.5, 0, 0.25, 1, 3};
    for (std::int64_t i = 0; i < 6; ++i) test::set_value(rows, i, given[i]);
    const Value x = tape.leaf(rows);
    const Value y = tanh_of(context, x);
    EXPECT_EQ(y.tensor.dtype(), dtype);
    const Tensor dy = context.activation(dtype, {2, 3});
    for (std::int64_t i = 0; i < 6; ++i) test::set_value(dy, i, static_cast<double>(i + 1));
    tape.seed(y, dy);
    tape.backward(context, Tape::Mode::kWhole);
    const Tensor dx = tape.take_gradient(x, context);
    for (std::int64_t i = 0; i < 6; ++i) {
      const double wanted = std::tanh(given[i]);
      EXPECT_NEAR(test::value_at(y.tensor, i), wanted, tolerance);
      EXPECT_NEAR(test::value_at(dx, i), static_cast<double>(i + 1) * (1 - wanted * wanted),
                  4 * tolerance);
    }
  }
}

}  // namespace
}  // namespace piton
