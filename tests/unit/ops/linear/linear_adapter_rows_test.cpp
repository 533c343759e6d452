// Adapters of some rows of a pass: each row is computed with its adapter, as if all rows had it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "ops/linear/linear.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace piton {
namespace {

constexpr std::int64_t kPassRows = 11;
constexpr std::int64_t kPassInputs = 6;
constexpr std::int64_t kPassOutputs = 9;

class AdapterRowsOfPass : public testing::Test {
 protected:
  AdapterRowsOfPass() {
    x_ = source_.normal(DType::kF64, {kPassRows, kPassInputs});
    residual_ = source_.normal(DType::kF64, {kPassRows, kPassOutputs});
    weight_ = &add("w", {kPassOutputs, kPassInputs});
    bias_ = &add("bias", {kPassOutputs});
  }

  Parameter& add(const std::string& name, const Shape& shape) {
    return parameters_.add({.name = name,
                            .dtype = DType::kF64,
                            .shape = shape,
                            .value = source_.normal(DType::kF64, shape)});
  }

  LinearAdapter adapter(const std::string& name, std::int64_t rank, std::int64_t out,
                        std::int64_t first) {
    return {.a = add(name + ".a", {rank, kPassInputs}),
            .b = add(name + ".b", {out, rank}),
            .scale = 1.5,
            .first_output = first};
  }

  static std::vector<LinearAdapter> of_rows(std::vector<LinearAdapter> adapters, RowRange rows) {
    for (LinearAdapter& one : adapters) one.rows = rows;
    return adapters;
  }

  Tensor column(const Tensor& x, const std::vector<LinearAdapter>& adapters) {
    Context context = this->context();
    return column_linear(
               context, {x}, {*weight_, *alone_, {}, nullptr, adapters},
               {.bias = bias_, .output = DType::kF64, .activation = ActivationKind::kGeluErf})
        .tensor;
  }

  Tensor row(const Tensor& x, const Tensor& residual, const std::vector<LinearAdapter>& adapters) {
    Context context = this->context();
    const Value added{residual};
    return row_linear(context, {x}, {*weight_, *alone_, {}, nullptr, adapters},
                      {.bias = bias_, .residual = &added, .dropout = {}})
        .tensor;
  }

  Context context() {
    return {.kernels = *kernels_,
            .stream = *stream_,
            .device = device_,
            .arena = arena_,
            .weights = weights_};
  }

  // Rows of the result are those of `alone`(x of the rows, residual of the rows).
  template <typename Alone>
  void expect_rows(const Tensor& got, RowRange rows, const Alone& alone) {
    const auto of = [&](const Tensor& tensor) { return tensor.slice(0, rows.begin, rows.size); };
    const auto wanted = test::values(alone(of(x_), of(residual_)));
    const auto values = test::values(of(got));
    ASSERT_EQ(values.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(values[i], wanted[i], 1e-14) << rows.begin << " " << i;
  }

  HostDevice device_;
  Arena arena_{device_};
  std::unique_ptr<Stream> stream_ = device_.make_stream();
  std::unique_ptr<Kernels> kernels_ = make_reference_kernels();
  std::unique_ptr<Communicator> alone_ = make_single_communicator(device_, "alone");
  ResidentWeights weights_{*kernels_, arena_};
  ParameterList parameters_;
  test::TensorSource source_{7};
  Tensor x_;
  Tensor residual_;
  Parameter* weight_ = nullptr;
  Parameter* bias_ = nullptr;
};

// Row 0 to 2 have no adapter; the second one is of two of three parts of the columns.
TEST_F(AdapterRowsOfPass, OfAColumnLinear) {
  const std::vector<LinearAdapter> first{adapter("all", 2, kPassOutputs, 0)};
  const std::vector<LinearAdapter> second{adapter("begin", 3, 4, 0), adapter("end", 1, 2, 7)};
  std::vector<LinearAdapter> both = of_rows(first, {3, 2});
  for (const LinearAdapter& one : of_rows(second, {5, 6})) both.push_back(one);
  const Tensor y = column(x_, both);
  expect_rows(y, {0, 3}, [&](const Tensor& x, const Tensor&) { return column(x, {}); });
  expect_rows(y, {3, 2}, [&](const Tensor& x, const Tensor&) { return column(x, first); });
  expect_rows(y, {5, 6}, [&](const Tensor& x, const Tensor&) { return column(x, second); });
}

TEST_F(AdapterRowsOfPass, OfARowLinear) {
  const std::vector<LinearAdapter> first{adapter("first", 2, kPassOutputs, 0)};
  const std::vector<LinearAdapter> second{adapter("second", 4, kPassOutputs, 0)};
  std::vector<LinearAdapter> both = of_rows(first, {0, 4});
  both.push_back(of_rows(second, {6, 5})[0]);
  const Tensor y = row(x_, residual_, both);
  const auto alone = [&](const std::vector<LinearAdapter>& adapters) {
    return [&, adapters](const Tensor& x, const Tensor& residual) {
      return row(x, residual, adapters);
    };
  };
  expect_rows(y, {0, 4}, alone(first));
  expect_rows(y, {4, 2}, alone({}));
  expect_rows(y, {6, 5}, alone(second));
}

// Lengths of rows of the weight change the rows that have the adapter, and no others.
TEST_F(AdapterRowsOfPass, WithMagnitudes) {
  std::vector<LinearAdapter> dora{adapter("dora", 2, kPassOutputs, 0)};
  dora[0].magnitude = &add("dora.m", {kPassOutputs});
  dora[0].lengths = std::make_shared<AdaptedLengths>();
  Context context = this->context();
  measure_rows(context, *weight_, dora, nullptr);
  const auto scaled = [&](const Tensor& x, const std::vector<LinearAdapter>& adapters) {
    const Value y = column_linear(context, {x}, {*weight_, *alone_, {}, nullptr, adapters},
                                  {.bias = bias_, .output = DType::kF64, .activation = {}});
    return with_magnitudes(context, y, adapters, bias_).tensor;
  };
  const Tensor y = scaled(x_, of_rows(dora, {4, 3}));
  expect_rows(y, {0, 4}, [&](const Tensor& x, const Tensor&) { return scaled(x, {}); });
  expect_rows(y, {4, 3}, [&](const Tensor& x, const Tensor&) { return scaled(x, dora); });
  expect_rows(y, {7, 4}, [&](const Tensor& x, const Tensor&) { return scaled(x, {}); });
}

// Slices of a linear have a part of an adapter's rows, or none of them.
TEST_F(AdapterRowsOfPass, AreCutWithSlices) {
  std::vector<LinearAdapter> both = of_rows({adapter("a", 2, kPassOutputs, 0)}, {2, 4});
  both.push_back(of_rows({adapter("b", 3, kPassOutputs, 0)}, {8, 3})[0]);
  const std::vector<Tensor> inputs{source_.normal(DType::kF64, {4, 2}),
                                   source_.normal(DType::kF64, {3, 3})};
  const AdaptersOfRows part = adapters_of_rows(both, inputs, {4, 3});
  ASSERT_EQ(part.list.size(), 1U);
  EXPECT_EQ(&part.list[0].a, &both[0].a);
  EXPECT_EQ(part.list[0].rows->begin, 0);
  EXPECT_EQ(part.list[0].rows->size, 2);
  EXPECT_EQ(test::values(part.inputs[0]), test::values(inputs[0].slice(0, 2, 2)));
  EXPECT_TRUE(adapters_of_rows(both, inputs, {6, 2}).list.empty());
  EXPECT_EQ(adapters_of_rows(both, inputs, {5, 6}).list.size(), 2U);
}

}  // namespace
}  // namespace piton
