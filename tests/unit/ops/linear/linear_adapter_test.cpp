// A linear with adapters against the formula, and its gradients against central differences, in
// fp64. A frozen linear keeps nothing for a gradient that nobody wants.
#include "ops/linear/linear_adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "ops/linear/linear.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace piton {
namespace {

constexpr std::int64_t kInputRows = 10;
constexpr std::int64_t kInputs = 6;
constexpr std::int64_t kOutputs = 9;
constexpr std::int64_t kLowRank = 3;
constexpr double kFactor = 1.75;

struct LinearCase {
  const char* name;
  bool column = true;
  bool activation = false;
  double dropout = 0;
  bool trains_weight = false;
};

class CountingKeeper final : public Keeper {
 public:
  std::shared_ptr<KeptTensor> keep(const Tensor& tensor) override {
    elements += tensor.elements();
    return std::make_shared<InPlace>(tensor);
  }
  std::int64_t elements = 0;

 private:
  struct InPlace final : KeptTensor {
    explicit InPlace(Tensor kept) : tensor(std::move(kept)) {}
    Tensor get() override { return tensor; }
    Tensor tensor;
  };
};

class AdaptedLinear : public testing::TestWithParam<LinearCase> {
 protected:
  AdaptedLinear() {
    x_ = source_.normal(DType::kF64, {kInputRows, kInputs});
    residual_ = source_.normal(DType::kF64, {kInputRows, kOutputs});
    dy_ = source_.normal(DType::kF64, {kInputRows, kOutputs});
    weight_ = &add("w", {kOutputs, kInputs}, GetParam().trains_weight);
    bias_ = &add("bias", {kOutputs}, GetParam().trains_weight);
    // Of a column linear two of three parts have adapters: columns 0 .. 3 and 7 .. 8.
    if (GetParam().column) {
      add_adapter("first", 4, 0);
      add_adapter("last", 2, 7);
    } else {
      add_adapter("all", kOutputs, 0);
    }
    consumed_ = host_tensor(DType::kI64, {1});
    *consumed_.data<std::int64_t>() = 40;
  }

  Parameter& add(const std::string& name, const Shape& shape, bool trainable) {
    Parameter& parameter = parameters_.add({.name = name,
                                            .dtype = DType::kF64,
                                            .shape = shape,
                                            .trainable = trainable,
                                            .value = source_.normal(DType::kF64, shape)});
    if (trainable) parameter.gradient = host_tensor(DType::kF64, shape);
    return parameter;
  }

  void add_adapter(const std::string& name, std::int64_t out, std::int64_t first) {
    Dropout dropout{.probability = GetParam().dropout, .key = site_key(5, name)};
    Parameter& a = add(name + ".a", {kLowRank, kInputs}, true);
    Parameter& b = add(name + ".b", {out, kLowRank}, true);
    adapters_.push_back(
        {.a = a, .b = b, .scale = kFactor, .dropout = dropout, .first_output = first});
  }

  std::vector<LinearAdapter> adapters() const {
    std::vector<LinearAdapter> list;
    for (LinearAdapter one : adapters_) {
      one.dropout.rows = {.consumed_samples = consumed_, .sequence = 5, .first_column = 3};
      list.push_back(one);
    }
    return list;
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

  Value run(Context& context, const Value& x, const Value& residual) {
    const SplitWeight split{*weight_, *alone_, {}, nullptr, adapters()};
    if (!GetParam().column)
      return row_linear(context, x, split, {.bias = bias_, .residual = &residual, .dropout = {}});
    ColumnEnd end{.bias = bias_, .output = DType::kF64};
    if (GetParam().activation) end.activation = ActivationKind::kGeluErf;
    return column_linear(context, x, split, end);
  }

  double loss() {
    Context plain = context(nullptr);
    const auto y = test::values(run(plain, {x_}, {residual_}).tensor);
    const auto dy = test::values(dy_);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  }

  // The factors of the mask of an adapter's input, [kInputRows, kInputs].
  std::vector<double> mask_of(const LinearAdapter& adapter) {
    const Tensor ones = host_tensor(DType::kF64, {kInputRows, kInputs});
    for (std::int64_t i = 0; i < ones.elements(); ++i) ones.data<double>()[i] = 1;
    const Tensor factors = host_tensor(DType::kF64, {kInputRows, kInputs});
    kernels_->run(DropoutAddForward{.y = factors, .x = ones, .dropout = adapter.dropout}, *stream_);
    return test::values(factors);
  }

  // y by the formula.
  std::vector<double> expected() {
    const auto x = test::values(x_);
    const auto w = test::values(weight_->value);
    const auto bias = test::values(bias_->value);
    const auto residual = test::values(residual_);
    std::vector<double> y(kInputRows * kOutputs);
    for (std::int64_t n = 0; n < kInputRows; ++n) {
      for (std::int64_t o = 0; o < kOutputs; ++o) {
        double sum = bias[o] + (GetParam().column ? 0 : residual[n * kOutputs + o]);
        for (std::int64_t i = 0; i < kInputs; ++i) sum += x[n * kInputs + i] * w[o * kInputs + i];
        y[n * kOutputs + o] = sum;
      }
    }
    for (const LinearAdapter& adapter : adapters()) {
      const auto a = test::values(adapter.a.value);
      const auto b = test::values(adapter.b.value);
      const auto mask = mask_of(adapter);
      for (std::int64_t n = 0; n < kInputRows; ++n) {
        for (std::int64_t r = 0; r < kLowRank; ++r) {
          double inner = 0;
          for (std::int64_t i = 0; i < kInputs; ++i)
            inner += mask[n * kInputs + i] * x[n * kInputs + i] * a[r * kInputs + i];
          for (std::int64_t o = 0; o < adapter.b.shape[0]; ++o)
            y[n * kOutputs + adapter.first_output + o] += kFactor * b[o * kLowRank + r] * inner;
        }
      }
    }
    if (GetParam().activation) {
      for (double& one : y) one = 0.5 * one * (1 + std::erf(one / std::sqrt(2.0)));
    }
    return y;
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

  void zero_gradients() {
    for (Parameter* parameter : parameters_.all()) {
      if (parameter->gradient.defined()) device_.zero(parameter->gradient, *stream_);
    }
  }

  test::TensorSource source_{11};
  HostDevice device_;
  Arena arena_{device_, 1 << 20};
  std::unique_ptr<Kernels> kernels_ = make_reference_kernels();
  std::unique_ptr<Stream> stream_ = device_.make_stream();
  ResidentWeights weights_{*kernels_, arena_};
  std::unique_ptr<Communicator> alone_ = make_single_communicator(device_, "alone");
  ParameterList parameters_;
  std::vector<LinearAdapter> adapters_;
  Parameter* weight_;
  Parameter* bias_;
  Tensor x_;
  Tensor residual_;
  Tensor dy_;
  Tensor consumed_;
};

TEST_P(AdaptedLinear, HasTheValuesOfTheFormula) {
  Context plain = context(nullptr);
  const Tensor y = run(plain, {x_}, {residual_}).tensor;
  EXPECT_TRUE(test::close(y, test::tensor_of(DType::kF64, {kInputRows, kOutputs}, expected()),
                          test::tolerance(DType::kF64, kInputs + kLowRank)));
}

TEST_P(AdaptedLinear, HasTheGradientsOfCentralDifferences) {
  for (const Tape::Mode mode : {Tape::Mode::kWhole, Tape::Mode::kInputOnly}) {
    zero_gradients();
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

TEST_P(AdaptedLinear, IsTheLinearAloneIfBIsZero) {
  for (const LinearAdapter& adapter : adapters_) device_.zero(adapter.b.value, *stream_);
  Context plain = context(nullptr);
  const Tensor with = run(plain, {x_}, {residual_}).tensor;
  adapters_.clear();
  EXPECT_TRUE(test::bit_equal(with, run(plain, {x_}, {residual_}).tensor));
}

// Of a frozen linear nothing is kept without adapters; with them, x and r numbers for each row.
TEST_P(AdaptedLinear, KeepsOnlyWhatATrainedWeightReads) {
  if (GetParam().activation) return;  // the activation keeps its input
  const auto kept = [&] {
    CountingKeeper keeper;
    Tape tape(&keeper);
    Context taped = context(&tape);
    run(taped, tape.leaf(x_), tape.leaf(residual_));
    return keeper.elements;
  };
  const auto ranks = static_cast<std::int64_t>(adapters_.size()) * kLowRank;
  EXPECT_EQ(kept(), kInputRows * (kInputs + ranks));
  adapters_.clear();
  EXPECT_EQ(kept(), GetParam().trains_weight ? kInputRows * kInputs : 0);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, AdaptedLinear,
    testing::Values(LinearCase{.name = "Column"},
                    LinearCase{.name = "ColumnWithDropout", .dropout = 0.4},
                    LinearCase{.name = "ColumnActivated", .activation = true, .dropout = 0.4},
                    LinearCase{.name = "ColumnTrained", .trains_weight = true},
                    LinearCase{.name = "Row", .column = false},
                    LinearCase{.name = "RowWithDropout", .column = false, .dropout = 0.4},
                    LinearCase{.name = "RowTrained", .column = false, .trains_weight = true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace piton
