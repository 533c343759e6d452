// Linears with DoRA under dropout, in fp64: values by the formula of PEFT (peft 0.21,
// tuners/lora/dora.py), which is computed here with the mask of the layer, and gradients by central
// differences, in which the lengths of rows are constants.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/random/philox.h"
#include "device/host_device.h"
#include "kernels/dropout.h"
#include "kernels/reference/kernels.h"
#include "nn/linear.h"
#include "support/compare.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace piton {
namespace {

constexpr std::int64_t kTokens = 10;
constexpr std::int64_t kWidth = 6;
constexpr std::int64_t kRows = 9;  // of W
constexpr std::int64_t kLowRank = 3;
constexpr double kProbability = 0.3;

// W, and the adapter of its rows from `first` on.
struct AdaptedPart {
  const char* name;
  std::int64_t first = 0;
  std::int64_t rows = 0;
};

class MagnitudesUnderDropout : public testing::TestWithParam<bool> {
 protected:
  MagnitudesUnderDropout() {
    shard_.group = alone_.get();
    shard_.dtype = DType::kF64;
    adapters_.dropout = kProbability;
    consumed_ = host_tensor(DType::kI64, {1});
    *consumed_.data<std::int64_t>() = 40;
    if (is_column()) {
      // Two of three parts have adapters.
      for (const AdaptedPart& part : parts_) {
        if (part.rows > 0) adapters_.shapes[part.name] = shape_;
      }
      column_ = std::make_unique<ColumnLinear>(
          parameters_, shard_, "qkv",
          ColumnLinearShape{.parts = {{"first", 4}, {"middle", 3}, {"last", 2}},
                            .in = kWidth,
                            .bias = true,
                            .adapters = &adapters_});
    } else {
      parts_ = {{"out", 0, kRows}};
      adapters_.shapes["out"] = shape_;
      row_ = std::make_unique<RowLinear>(
          parameters_, shard_, "out",
          RowLinearShape{.out = kRows, .in = kWidth, .bias = true, .adapters = &adapters_});
    }
    adapters_.freeze(parameters_.all());
    for (Parameter* parameter : parameters_.all()) {
      parameter->value = source_.normal(DType::kF64, parameter->shape);
      if (parameter->trainable) parameter->gradient = host_tensor(DType::kF64, parameter->shape);
    }
    x_ = source_.normal(DType::kF64, {kTokens, kWidth});
    residual_ = source_.normal(DType::kF64, {kTokens, kRows});
    dy_ = source_.normal(DType::kF64, {kTokens, kRows});
  }

  static bool is_column() { return GetParam(); }

  Context context(Tape* tape) {
    return {.kernels = *kernels_,
            .stream = *stream_,
            .device = device_,
            .arena = arena_,
            .weights = weights_,
            .tape = tape,
            .training = true,
            .seed = 5,
            .rows = {.consumed_samples = consumed_, .sequence = 5}};
  }

  Value run(Context& context, const Value& x, const Value& residual) {
    if (is_column()) return column_->forward(context, x);
    return row_->forward(context, x, &residual, {});
  }

  std::vector<double> values_of(const std::string& name) {
    for (Parameter* parameter : parameters_.all()) {
      if (parameter->name == name) return test::values(parameter->value);
    }
    ADD_FAILURE() << "no " << name;
    return {};
  }

  // dropout(x), [kTokens, kWidth]: the mask is that of the first adapter of the linear.
  std::vector<double> masked_x() {
    const Tensor y = host_tensor(DType::kF64, {kTokens, kWidth});
    const std::string site = std::string(parts_[0].name) + ".lora_a.dropout";
    kernels_->run(
        DropoutAddForward{.y = y,
                          .x = x_,
                          .dropout = {.probability = kProbability,
                                      .key = site_key(5, site),
                                      .rows = {.consumed_samples = consumed_, .sequence = 5}}},
        *stream_);
    return test::values(y);
  }

  // result = base_layer(x) + (m / |W + s B A| - 1) W x' + m / |W + s B A| s B A x'
  std::vector<double> expected() {
    const std::string name = is_column() ? "qkv" : "out";
    const auto w = values_of(name + ".weight");
    const auto bias = values_of(name + ".bias");
    const auto x = test::values(x_);
    const auto masked = masked_x();
    const auto residual = test::values(residual_);
    const auto product = [&](const std::vector<double>& of, std::int64_t n, std::int64_t o) {
      double sum = 0;
      for (std::int64_t i = 0; i < kWidth; ++i) sum += of[n * kWidth + i] * w[o * kWidth + i];
      return sum;
    };
    std::vector<double> y(kTokens * kRows);
    for (std::int64_t n = 0; n < kTokens; ++n) {
      for (std::int64_t o = 0; o < kRows; ++o)
        y[n * kRows + o] = product(x, n, o) + bias[o] + (is_column() ? 0 : residual[n * kRows + o]);
    }
    for (const AdaptedPart& part : parts_) {
      if (part.rows == 0) continue;
      const auto a = values_of(std::string(part.name) + ".lora_a");
      const auto b = values_of(std::string(part.name) + ".lora_b");
      const auto magnitude = values_of(std::string(part.name) + ".lora_magnitude");
      for (std::int64_t o = 0; o < part.rows; ++o) {
        std::vector<double> delta(kWidth);
        double squares = 0;
        for (std::int64_t i = 0; i < kWidth; ++i) {
          for (std::int64_t r = 0; r < kLowRank; ++r)
            delta[i] += shape_.scale * b[o * kLowRank + r] * a[r * kWidth + i];
          const double one = w[(part.first + o) * kWidth + i] + delta[i];
          squares += one * one;
        }
        const double factor = magnitude[o] / std::sqrt(squares);
        for (std::int64_t n = 0; n < kTokens; ++n) {
          double low = 0;
          for (std::int64_t i = 0; i < kWidth; ++i) low += delta[i] * masked[n * kWidth + i];
          y[n * kRows + part.first + o] +=
              (factor - 1) * product(masked, n, part.first + o) + factor * low;
        }
      }
    }
    return y;
  }

  // The lengths are those of the first call: values change here without a new version.
  double loss() {
    Context plain = context(nullptr);
    const auto y = test::values(run(plain, {x_}, {residual_}).tensor);
    const auto dy = test::values(dy_);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  }

  Tensor slopes(const Tensor& of) {
    const Tensor result = host_tensor(DType::kF64, of.shape());
    for (std::int64_t i = 0; i < of.elements(); ++i) {
      double& element = of.data<double>()[i];
      const double middle = element;
      element = middle + test::kDifferenceStep;
      const double above = loss();
      element = middle - test::kDifferenceStep;
      const double below = loss();
      element = middle;
      result.data<double>()[i] = (above - below) / (2 * test::kDifferenceStep);
    }
    return result;
  }

  test::TensorSource source_{12};
  HostDevice device_;
  Arena arena_{device_, 1 << 20};
  std::unique_ptr<Kernels> kernels_ = make_reference_kernels();
  std::unique_ptr<Stream> stream_ = device_.make_stream();
  ResidentWeights weights_{*kernels_, arena_};
  std::unique_ptr<Communicator> alone_ = make_single_communicator(device_, "alone");
  const AdapterShape shape_{.rank = kLowRank, .scale = 1.75, .magnitude = true};
  Adapters adapters_;
  Shard shard_;
  ParameterList parameters_;
  std::unique_ptr<ColumnLinear> column_;
  std::unique_ptr<RowLinear> row_;
  std::vector<AdaptedPart> parts_{{"first", 0, 4}, {"middle", 4, 0}, {"last", 7, 2}};
  Tensor x_;
  Tensor residual_;
  Tensor dy_;
  Tensor consumed_;
};

TEST_P(MagnitudesUnderDropout, HaveTheValuesOfPeft) {
  Context plain = context(nullptr);
  const Tensor y = run(plain, {x_}, {residual_}).tensor;
  EXPECT_TRUE(test::close(y, test::tensor_of(DType::kF64, {kTokens, kRows}, expected()),
                          test::tolerance(DType::kF64, 4 * kWidth + kLowRank)));
}

TEST_P(MagnitudesUnderDropout, HaveTheGradientsOfCentralDifferences) {
  for (const Tape::Mode mode : {Tape::Mode::kWhole, Tape::Mode::kInputOnly}) {
    for (Parameter* parameter : parameters_.all()) {
      if (parameter->gradient.defined()) device_.zero(parameter->gradient, *stream_);
    }
    Tape tape;
    Context taped = context(&tape);
    const Value x = tape.leaf(x_);
    const Value residual = tape.leaf(residual_);
    const Value y = run(taped, x, residual);
    tape.seed(y, dy_);
    tape.backward(taped, mode);
    tape.run_weight_jobs(taped);
    EXPECT_TRUE(
        test::close(tape.take_gradient(x, taped), slopes(x_), test::difference_tolerance()));
    for (Parameter* parameter : parameters_.all()) {
      if (!parameter->trainable) continue;
      EXPECT_TRUE(
          test::close(parameter->gradient, slopes(parameter->value), test::difference_tolerance()))
          << parameter->name;
    }
  }
}

// Outside of training nothing is masked.
TEST_P(MagnitudesUnderDropout, AreThoseWithoutDropoutOutsideOfTraining) {
  Context plain = context(nullptr);
  const Tensor masked = run(plain, {x_}, {residual_}).tensor;
  plain.training = false;
  const Tensor whole = run(plain, {x_}, {residual_}).tensor;
  EXPECT_FALSE(test::bit_equal(masked, whole));
  Context other = context(nullptr);
  other.training = false;
  other.seed = 6;
  EXPECT_TRUE(test::bit_equal(whole, run(other, {x_}, {residual_}).tensor));
}

INSTANTIATE_TEST_SUITE_P(Linears, MagnitudesUnderDropout, testing::Bool(),
                         [](const auto& info) { return info.param ? "Column" : "Row"; });

}  // namespace
}  // namespace piton
