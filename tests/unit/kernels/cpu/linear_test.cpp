// Linears with more than one stretch of k: sums computed in stretches against sums in double, with
// every instruction set of this machine.
#include <gtest/gtest.h>

#include <algorithm>

#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "support/compare.h"
#include "support/instruction_sets.h"
#include "support/tensors.h"

namespace piton::test {
namespace {

// a [n, k] times the transpose of b [m, k], in double.
Tensor product(const Tensor& a, const Tensor& b) {
  const Tensor sums = host_tensor(DType::kF64, {a.dim(0), b.dim(0)});
  const auto left = values(a);
  const auto right = values(b);
  const std::int64_t k = a.dim(1);
  for (std::int64_t i = 0; i < a.dim(0); ++i) {
    for (std::int64_t j = 0; j < b.dim(0); ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < k; ++p) {
        sum +=
            left[static_cast<std::size_t>(i * k + p)] * right[static_cast<std::size_t>(j * k + p)];
      }
      set_value(sums, i * b.dim(0) + j, sum);
    }
  }
  return sums;
}

Tensor transposed(const Tensor& x) {
  const Tensor y = host_tensor(x.dtype(), {x.dim(1), x.dim(0)});
  for (std::int64_t i = 0; i < x.dim(0); ++i) {
    for (std::int64_t j = 0; j < x.dim(1); ++j) {
      set_value(y, j * x.dim(0) + i, value_at(x, i * x.stride(0) + j));
    }
  }
  return y;
}

class DeepLinear : public ::testing::TestWithParam<std::tuple<const char*, DType>> {
 protected:
  DeepLinear() : threads_(2), stream_(device_.make_stream()) {}

  void SetUp() override {
    try {
      kernels_ = make_cpu_kernels(threads_, std::get<0>(GetParam()));
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  DType dtype() const { return std::get<1>(GetParam()); }

  WeightView packed(const Tensor& rows, WeightForm form) {
    const std::int64_t bytes = kernels_->packed_bytes(form, rows.dim(0), rows.dim(1), rows.dtype());
    const Tensor packed = host_tensor(DType::kU8, {bytes});
    kernels_->run(PackWeight{.packed = packed, .rows = rows, .form = form}, *stream_);
    return {.form = form,
            .tensor = packed,
            .out = rows.dim(0),
            .in = rows.dim(1),
            .dtype = rows.dtype()};
  }

  ThreadPool threads_;
  HostDevice device_;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Stream> stream_;
  TensorSource source_{7};
};

// A weight in rows is packed for some columns at a time: 300 are past the 256 of one of 33 000
// deep, 300 rows past what one part of a product takes.
TEST_P(DeepLinear, WeightsInRowsGiveTheBitsOfPackedOnes) {
  for (const WeightForm form : {WeightForm::kForward, WeightForm::kBackward}) {
    const bool forward = form == WeightForm::kForward;
    const Tensor weight = source_.normal(dtype(), forward ? Shape{300, 16500} : Shape{16500, 300});
    const Tensor a = source_.normal_rows(dtype(), {140, 16500});
    Tensor y[2];
    for (int rows = 0; rows < 2; ++rows) {
      y[rows] = host_tensor(dtype(), {140, 300});
      WeightView view = packed(weight, form);
      if (rows == 1) view.form = WeightForm::kRows, view.tensor = weight;
      if (forward) {
        kernels_->run(LinearForward{.y = y[rows], .x = a, .weight = view}, *stream_);
      } else {
        kernels_->run(LinearBackwardInput{.dx = y[rows], .dy = a, .weight = view}, *stream_);
      }
    }
    EXPECT_TRUE(bit_equal(y[0], y[1])) << (forward ? "forward" : "backward");
  }
}

// 8 200 is past one tile of either way, 70 and 13 are past a panel and a group of rows.
TEST_P(DeepLinear, ForwardIsTheSumOverAllOfItsDepth) {
  const Tensor x = source_.normal_rows(dtype(), {13, 8200});
  const Tensor weight = source_.normal(dtype(), {70, 8200});
  const Tensor y = source_.unwritten(dtype(), {13, 70});
  kernels_->run(LinearForward{.y = y, .x = x, .weight = packed(weight, WeightForm::kForward)},
                *stream_);
  EXPECT_TRUE(close(y, product(x, weight), tolerance(dtype(), 8200)));
}

// Large results may go past the caches: 1 100 rows of 960 are 2 MiB in bf16.
TEST_P(DeepLinear, ForwardOfManyRowsIsTheSum) {
  const Tensor x = source_.normal_rows(dtype(), {1100, 40});
  const Tensor weight = source_.normal(dtype(), {960, 40});
  const Tensor y = source_.unwritten(dtype(), {1100, 960});
  kernels_->run(LinearForward{.y = y, .x = x, .weight = packed(weight, WeightForm::kForward)},
                *stream_);
  EXPECT_TRUE(close(y, product(x, weight), tolerance(dtype(), 40)));
}

// Several squares of rows and columns, whose sums wait for the second half of 1 700.
TEST_P(DeepLinear, ForwardOfManyDeepRowsIsTheSum) {
  const Tensor x = source_.normal_rows(dtype(), {147, 1700});
  const Tensor weight = source_.normal(dtype(), {150, 1700});
  const Tensor bias = source_.normal(dtype(), {150});
  const Tensor y = source_.unwritten(dtype(), {147, 150});
  kernels_->run(
      LinearForward{.y = y, .x = x, .weight = packed(weight, WeightForm::kForward), .bias = bias},
      *stream_);
  const Tensor wanted = product(x, weight);
  for (std::int64_t i = 0; i < wanted.elements(); ++i) {
    set_value(wanted, i, value_at(wanted, i) + value_at(bias, i % 150));
  }
  EXPECT_TRUE(close(y, wanted, tolerance(dtype(), 1700)));
}

// Rows by themselves go another way than rows in company: 1 to 24 are few, in passes of up to 6.
// 330 columns are five panels, which threads share, and one that is not whole.
TEST_P(DeepLinear, FewRowsHaveTheBitsOfTheSameRowsAmongMany) {
  const Tensor x = source_.normal_rows(dtype(), {150, 1100});
  const Tensor bias = source_.normal(dtype(), {330});
  for (const WeightForm form : {WeightForm::kForward, WeightForm::kBackward}) {
    const bool forward = form == WeightForm::kForward;
    const Tensor rows = source_.normal(dtype(), forward ? Shape{330, 1100} : Shape{1100, 330});
    const WeightView weight = packed(rows, form);
    const auto product_of = [&](const Tensor& left) {
      const Tensor y = source_.unwritten(dtype(), {left.dim(0), 330});
      if (forward) {
        kernels_->run(LinearForward{.y = y, .x = left, .weight = weight, .bias = bias}, *stream_);
      } else {
        kernels_->run(LinearBackwardInput{.dx = y, .dy = left, .weight = weight}, *stream_);
      }
      return values(y);
    };
    const std::vector<double> many = product_of(x);
    for (std::int64_t count = 1; count <= 26; ++count) {
      const std::vector<double> few = product_of(x.slice(0, 0, count));
      EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin())) << count << " rows";
    }
  }
}

// A weight as it is stored may be read where it is. 330 columns end within a tile, 1 088 are
// whole steps; the logits of a head are fp32.
TEST_P(DeepLinear, StoredRowsGiveTheBitsOfPackedOnes) {
  const Tensor x = source_.normal_rows(dtype(), {40, 1088});
  const Tensor rows = source_.normal(dtype(), {330, 1088});
  const Tensor bias = source_.normal(dtype(), {330});
  const Tensor residual = source_.normal_rows(dtype(), {40, 330});
  const WeightView packed_rows = packed(rows, WeightForm::kForward);
  const WeightView stored{.tensor = rows, .out = 330, .in = 1088, .dtype = dtype(), .codes = {}};
  for (const std::int64_t count : {1, 2, 9, 16, 17, 32, 33, 40}) {
    const auto products = [&](const WeightView& weight) {
      const Tensor x_of = x.slice(0, 0, count);
      const Tensor plain = source_.unwritten(DType::kF32, {count, 330});
      const Tensor biased = source_.unwritten(dtype(), {count, 330});
      const Tensor active = source_.unwritten(dtype(), {count, 330});
      const Tensor added = source_.unwritten(dtype(), {count, 330});
      kernels_->run(LinearForward{.y = plain, .x = x_of, .weight = weight}, *stream_);
      kernels_->run(LinearForward{.y = biased, .x = x_of, .weight = weight, .bias = bias},
                    *stream_);
      kernels_->run(LinearForward{.y = active,
                                  .x = x_of,
                                  .weight = weight,
                                  .bias = bias,
                                  .activation = ActivationKind::kGeluTanh},
                    *stream_);
      kernels_->run(
          LinearForward{
              .y = added, .x = x_of, .weight = weight, .residual = residual.slice(0, 0, count)},
          *stream_);
      return std::vector{values(plain), values(biased), values(active), values(added)};
    };
    EXPECT_EQ(products(stored), products(packed_rows)) << count << " rows";
  }
}

TEST_P(DeepLinear, BackwardIsTheSumOverAllOfItsDepth) {
  const Tensor dy = source_.normal_rows(dtype(), {13, 8200});
  const Tensor weight = source_.normal(dtype(), {8200, 70});
  const Tensor dx = source_.unwritten(dtype(), {13, 70});
  kernels_->run(
      LinearBackwardInput{.dx = dx, .dy = dy, .weight = packed(weight, WeightForm::kBackward)},
      *stream_);
  EXPECT_TRUE(close(dx, product(dy, transposed(weight)), tolerance(dtype(), 8200)));
}

// 2 051 rows are three stretches, the last one odd.
TEST_P(DeepLinear, WeightGradientIsTheSumOverAllRows) {
  const Tensor dy = source_.normal_rows(dtype(), {2051, 200});
  const Tensor x = source_.normal_rows(dtype(), {2051, 70});
  const Tensor dweight = host_tensor(DType::kF32, {200, 70});
  kernels_->run(LinearBackwardWeight{.dweight = dweight, .dy = dy, .x = x}, *stream_);
  EXPECT_TRUE(close(dweight, product(transposed(dy), transposed(x)), tolerance(DType::kF32, 2051)));
}

INSTANTIATE_TEST_SUITE_P(Sets, DeepLinear,
                         ::testing::Combine(::testing::ValuesIn(kInstructionSets),
                                            ::testing::Values(DType::kF32, DType::kBF16,
                                                              DType::kF16)),
                         set_and_dtype);

}  // namespace
}  // namespace piton::test
