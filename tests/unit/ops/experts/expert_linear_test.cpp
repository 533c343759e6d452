// The product of experts with adapters against the formula, and its gradients against central
// differences, in fp64; with biases, a mask, an expert without rows, and columns without adapter.
#include "ops/experts/expert_linear.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "support/tensors.h"

namespace piton {
namespace {

constexpr std::int64_t kExperts = 3, kRows = 7, kUsedRows = 6, kIn = 5, kOut = 8, kRank = 2;
constexpr std::int64_t kFirstRows[] = {0, 2, 2, 6};
constexpr std::int64_t kFirstOutput = 3, kAdapted = 4;  // columns 3 .. 6 have an adapter
constexpr double kScale = 1.75;

class AdaptedExperts : public testing::TestWithParam<bool> {  // with a mask
 protected:
  AdaptedExperts() {
    weight_ = &add("w", {kExperts * kOut, kIn}, false);
    bias_ = &add("bias", {kExperts * kOut}, false);
    a_ = &add("a", {kExperts * kRank, kIn}, true);
    b_ = &add("b", {kExperts * kAdapted, kRank}, true);
    x_ = source_.normal(DType::kF64, {kRows, kIn});
    dy_ = source_.normal(DType::kF64, {kRows, kOut});
    first_rows_ = host_tensor(DType::kI32, {kExperts + 1});
    for (std::int64_t i = 0; i <= kExperts; ++i)
      first_rows_.data<std::int32_t>()[i] = static_cast<std::int32_t>(kFirstRows[i]);
    if (!GetParam()) return;
    mask_ = host_tensor(DType::kF64, {kRows, kIn});
    for (std::int64_t i = 0; i < mask_.elements(); ++i)
      test::set_value(mask_, i, i % 3 == 0 ? 0 : 1.5);
  }

  Parameter& add(const std::string& name, const Shape& shape, bool trainable) {
    Parameter parameter{.name = name, .dtype = DType::kF64, .shape = shape};
    parameter.trainable = trainable;
    parameter.matrices = shape.ndim() > 1 ? kExperts : 1;
    parameter.value = source_.normal(DType::kF64, shape);
    if (trainable) parameter.gradient = host_tensor(DType::kF64, shape);
    return parameters_.add(std::move(parameter));
  }

  Context context(Tape* tape) {
    return {.kernels = *kernels_,
            .stream = *stream_,
            .device = device_,
            .arena = arena_,
            .weights = weights_,
            .tape = tape,
            .training = true};
  }

  Value run(Context& context, const Value& x) {
    const ExpertAdapter adapter{.a = *a_, .b = *b_, .scale = kScale, .first_output = kFirstOutput};
    return expert_linear(context, x,
                         {.weight = *weight_, .bias = bias_, .adapters = {adapter}, .mask = mask_},
                         first_rows_);
  }

  // The sum of dy y over the rows that are of an expert.
  double loss() {
    Context plain = context(nullptr);
    const auto y = test::values(run(plain, {x_}).tensor);
    const auto dy = test::values(dy_);
    double sum = 0;
    for (std::size_t i = 0; i < kUsedRows * kOut; ++i) sum += y[i] * dy[i];
    return sum;
  }

  void expect_gradient(const Tensor& of, const Tensor& gradient, std::int64_t elements,
                       const char* name) {
    constexpr double kStep = 1e-5;
    double largest = 0;
    for (std::int64_t i = 0; i < elements; ++i) {
      const double before = test::value_at(of, i);
      test::set_value(of, i, before + kStep);
      const double above = loss();
      test::set_value(of, i, before - kStep);
      const double below = loss();
      test::set_value(of, i, before);
      EXPECT_NEAR(test::value_at(gradient, i), (above - below) / (2 * kStep), 1e-7)
          << name << " " << i;
      largest = std::max(largest, std::abs(above - below));
    }
    EXPECT_GT(largest, 0) << name;
  }

  HostDevice device_;
  Arena arena_{device_};
  std::unique_ptr<Stream> stream_ = device_.make_stream();
  std::unique_ptr<Kernels> kernels_ = make_reference_kernels();
  ResidentWeights weights_{*kernels_, arena_};
  ParameterList parameters_;
  test::TensorSource source_{7};
  Parameter *weight_ = nullptr, *bias_ = nullptr, *a_ = nullptr, *b_ = nullptr;
  Tensor x_, dy_, first_rows_, mask_;
};

INSTANTIATE_TEST_SUITE_P(Masks, AdaptedExperts, testing::Bool());

TEST_P(AdaptedExperts, HaveTheProductOfTheFormula) {
  Context plain = context(nullptr);
  const Tensor y = run(plain, {x_}).tensor;
  const auto at = [](const Tensor& matrix, std::int64_t row, std::int64_t column) {
    return test::value_at(matrix, row * matrix.dim(1) + column);
  };
  for (std::int64_t row = 0; row < kUsedRows; ++row) {
    const std::int64_t expert = row < kFirstRows[1] ? 0 : 2;
    for (std::int64_t out = 0; out < kOut; ++out) {
      double sum = test::value_at(bias_->value, expert * kOut + out);
      for (std::int64_t in = 0; in < kIn; ++in) {
        const double x = at(x_, row, in);
        const double seen = mask_.defined() ? x * at(mask_, row, in) : x;
        sum += x * at(weight_->value, expert * kOut + out, in);
        const std::int64_t own = out - kFirstOutput;
        if (own < 0 || own >= kAdapted) continue;
        for (std::int64_t r = 0; r < kRank; ++r) {
          sum += kScale * seen * at(a_->value, expert * kRank + r, in) *
                 at(b_->value, expert * kAdapted + own, r);
        }
      }
      EXPECT_NEAR(at(y, row, out), sum, 1e-12) << row << " " << out;
    }
  }
  plain.adapters = false;
  EXPECT_NE(test::values(run(plain, {x_}).tensor), test::values(y));
}

TEST_P(AdaptedExperts, HaveTheGradientsOfDifferences) {
  Tape tape;
  Context taped = context(&tape);
  const Value x = tape.leaf(x_);
  tape.seed(run(taped, x), dy_);
  tape.backward(taped, Tape::Mode::kWhole);
  expect_gradient(x_, tape.take_gradient(x, taped), kUsedRows * kIn, "x");
  expect_gradient(a_->value, a_->gradient, a_->value.elements(), "a");
  expect_gradient(b_->value, b_->gradient, b_->value.elements(), "b");
  EXPECT_FALSE(weight_->gradient.defined());
}

}  // namespace
}  // namespace piton
