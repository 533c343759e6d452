// Products on packed panels at sizes around each edge: rows of a group and of a part, columns of a
// vector and of a panel, k of an unrolled step and of a stretch. With every instruction set of this
// machine, against sums in double, and with the same bits on 1, 2 and 3 threads.
#include <gtest/gtest.h>

#include <algorithm>

#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/processor/isa.h"
#include "support/compare.h"
#include "support/instruction_sets.h"
#include "support/tensors.h"

namespace piton::test {
namespace {

struct Size {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
};

class PanelEdges : public ::testing::TestWithParam<std::tuple<const char*, DType>> {
 protected:
  PanelEdges() : one_(1), two_(2), three_(3), stream_(device_.make_stream()) {}

  void SetUp() override {
    try {
      isa_ = cpu::find_isa(isa());
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    for (ThreadPool* threads : {&one_, &two_, &three_}) {
      kernels_.push_back(make_cpu_kernels(*threads, isa()));
    }
  }

  std::string isa() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }

  // Around one edge at a time, the others at an awkward size.
  std::vector<Size> sizes() const {
    const cpu::PanelTable& table = cpu::panel_table(isa_);
    std::vector<Size> sizes;
    const auto around = [](std::int64_t edge) { return std::vector{edge - 1, edge, edge + 1}; };
    for (const std::int64_t edge :
         {std::int64_t{2}, table.group, 2 * table.group, std::int64_t{24}, table.part_rows}) {
      for (const std::int64_t rows : around(edge)) sizes.push_back({rows, table.panel + 5, 37});
    }
    for (const std::int64_t edge :
         {std::int64_t{2}, table.lanes, 2 * table.lanes, table.panel, 5 * table.panel}) {
      for (const std::int64_t columns : around(edge)) {
        sizes.push_back({table.group + 1, columns, 21});
        sizes.push_back({30, columns, 21});
      }
    }
    for (const std::int64_t edge :
         {std::int64_t{2}, std::int64_t{4}, std::int64_t{16}, table.depth, 2 * table.depth}) {
      for (const std::int64_t depth : around(edge)) {
        sizes.push_back({3, table.panel + 1, depth});
        sizes.push_back({27, table.panel + 1, depth});
      }
    }
    return sizes;
  }

  // Runs the call by each number of threads and expects the same bits of what `output` names.
  template <typename Call>
  void run_by_all(Call call, Tensor Call::*output) {
    const Tensor start = copy(call.*output);
    kernels_[0]->run(call, *stream_);
    for (std::size_t i = 1; i < kernels_.size(); ++i) {
      Call other = call;
      other.*output = copy(start);
      kernels_[i]->run(other, *stream_);
      EXPECT_TRUE(bit_equal(other.*output, call.*output)) << i + 1 << " threads";
    }
  }

  static Tensor copy(const Tensor& from) {
    const Tensor to = host_tensor(from.dtype(), from.shape());
    const auto elements = offsets(from);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      set_value(to, static_cast<std::int64_t>(i), value_at(from, elements[i]));
    }
    return to;
  }

  std::vector<WeightView> forms(const Tensor& rows, WeightForm form) {
    const std::int64_t bytes =
        kernels_[0]->packed_bytes(form, rows.dim(0), rows.dim(1), rows.dtype());
    const Tensor packed = host_tensor(DType::kU8, {bytes});
    kernels_[0]->run(PackWeight{.packed = packed, .rows = rows, .form = form}, *stream_);
    WeightView plain{.form = WeightForm::kRows,
                     .tensor = rows,
                     .out = rows.dim(0),
                     .in = rows.dim(1),
                     .dtype = rows.dtype()};
    WeightView view = plain;
    view.form = form;
    view.tensor = packed;
    return {plain, view};
  }

  ThreadPool one_;
  ThreadPool two_;
  ThreadPool three_;
  HostDevice device_;
  cpu::Isa isa_{};
  std::vector<std::unique_ptr<Kernels>> kernels_;
  std::unique_ptr<Stream> stream_;
  TensorSource source_{11};
};

// sums[i, j] = sum over p of a(i, p) b(p, j), in double.
template <typename Left, typename Right>
Tensor product(const Size& size, Left a, Right b) {
  const Tensor sums = host_tensor(DType::kF64, {size.rows, size.columns});
  for (std::int64_t i = 0; i < size.rows; ++i) {
    for (std::int64_t j = 0; j < size.columns; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < size.depth; ++p) sum += a(i, p) * b(p, j);
      set_value(sums, i * size.columns + j, sum);
    }
  }
  return sums;
}

auto reader(const Tensor& tensor) {
  return [values = values(tensor), columns = tensor.dim(1)](std::int64_t row, std::int64_t column) {
    return values[static_cast<std::size_t>(row * columns + column)];
  };
}

TEST_P(PanelEdges, ForwardIsTheSum) {
  for (const Size& size : sizes()) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", size.rows, size.columns, size.depth));
    const Tensor x = source_.normal_rows(dtype(), {size.rows, size.depth});
    const Tensor weight = source_.normal(dtype(), {size.columns, size.depth});
    const Tensor bias = source_.normal(dtype(), {size.columns});
    const auto a = reader(x);
    const auto b = reader(weight);
    const Tensor wanted = product(size, a, [&](std::int64_t p, std::int64_t j) { return b(j, p); });
    for (std::int64_t i = 0; i < wanted.elements(); ++i) {
      set_value(wanted, i, value_at(wanted, i) + value_at(bias, i % size.columns));
    }
    Tensor of_rows;
    for (const WeightView& view : forms(weight, WeightForm::kForward)) {
      const Tensor y = source_.unwritten(dtype(), {size.rows, size.columns});
      run_by_all(LinearForward{.y = y, .x = x, .weight = view, .bias = bias}, &LinearForward::y);
      EXPECT_TRUE(close(y, wanted, tolerance(dtype(), size.depth)));
      if (of_rows.defined()) {
        EXPECT_TRUE(bit_equal(y, of_rows));
      }
      of_rows = y;
    }
  }
}

TEST_P(PanelEdges, BackwardInputIsTheSum) {
  for (const Size& size : sizes()) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", size.rows, size.columns, size.depth));
    const Tensor dy = source_.normal_rows(dtype(), {size.rows, size.depth});
    const Tensor weight = source_.normal(dtype(), {size.depth, size.columns});
    const Tensor wanted = product(size, reader(dy), reader(weight));
    Tensor of_rows;
    for (const WeightView& view : forms(weight, WeightForm::kBackward)) {
      const Tensor dx = source_.unwritten(dtype(), {size.rows, size.columns});
      run_by_all(LinearBackwardInput{.dx = dx, .dy = dy, .weight = view}, &LinearBackwardInput::dx);
      EXPECT_TRUE(close(dx, wanted, tolerance(dtype(), size.depth)));
      if (of_rows.defined()) {
        EXPECT_TRUE(bit_equal(dx, of_rows));
      }
      of_rows = dx;
    }
  }
}

// Rows of a size are columns of dy, either more or fewer than those of x.
TEST_P(PanelEdges, WeightGradientIsAddedToWhatWasThere) {
  for (const Size& size : sizes()) {
    SCOPED_TRACE(fmt::format("{} x {} x {}", size.rows, size.columns, size.depth));
    const Tensor dy = source_.normal_rows(dtype(), {size.depth, size.rows});
    const Tensor x = source_.normal_rows(dtype(), {size.depth, size.columns});
    const Tensor dweight = source_.normal(DType::kF32, {size.rows, size.columns});
    const auto a = reader(dy);
    const Tensor wanted = product(
        size, [&](std::int64_t i, std::int64_t p) { return a(p, i); }, reader(x));
    for (std::int64_t i = 0; i < wanted.elements(); ++i) {
      set_value(wanted, i, value_at(wanted, i) + value_at(dweight, i));
    }
    run_by_all(LinearBackwardWeight{.dweight = dweight, .dy = dy, .x = x},
               &LinearBackwardWeight::dweight);
    EXPECT_TRUE(close(dweight, wanted, tolerance(DType::kF32, size.depth)));
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, PanelEdges,
                         ::testing::Combine(::testing::ValuesIn(kInstructionSets),
                                            ::testing::Values(DType::kF32, DType::kBF16,
                                                              DType::kF16)),
                         set_and_dtype);

}  // namespace
}  // namespace piton::test
