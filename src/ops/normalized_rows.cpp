#include "ops/normalized_rows.h"

#include <cmath>
#include <vector>

namespace piton {
namespace {

// Minimum divisor: PyTorch's normalize() divides shorter rows by this.
constexpr double kShortest = 1e-12;

// A gain of 1 / sqrt(h) in every channel: with it an RMS norm divides a row by its length.
Tensor length_gain(const Context& context, DType dtype, std::int64_t channels) {
  const Tensor host = host_tensor(dtype, {channels});
  const double gain = 1 / std::sqrt(static_cast<double>(channels));
  for (std::int64_t i = 0; i < channels; ++i) {
    if (dtype == DType::kF64) {
      host.data<double>()[i] = gain;
    } else {
      host.data<float>()[i] = static_cast<float>(gain);
    }
  }
  Tensor tensor = context.workspace(dtype, {channels});
  context.device.upload(host.raw(), tensor, context.stream);
  return tensor;
}

}  // namespace

NormalizedRows::NormalizedRows(Context& context, Parameter& table) {
  const DType sums = sum_dtype(table.dtype);
  const Shape& shape = table.shape;
  table_ = context.workspace(sums, shape);
  {
    const WeightUse use = context.weights.acquire(table, WeightForm::kRows, context.stream);
    context.kernels.run(Copy{.dst = table_, .src = use.rows()}, context.stream);
  }
  gain_ = length_gain(context, sums, shape[1]);
  rstd_ = context.workspace(sums, {shape[0]});
  const Tensor wide = context.workspace(sums, shape);
  context.kernels.run(NormForward{.y = wide,
                                  .rstd = rstd_,
                                  .x = table_,
                                  .gain = gain_,
                                  .eps = kShortest * kShortest / static_cast<double>(shape[1])},
                      context.stream);
  rows_ = wide;
  if (table.dtype == sums) return;
  rows_ = context.workspace(table.dtype, shape);
  context.kernels.run(Copy{.dst = rows_, .src = wide}, context.stream);
}

WeightView NormalizedRows::view() const {
  return {.form = WeightForm::kRows,
          .tensor = rows_,
          .out = rows_.dim(0),
          .in = rows_.dim(1),
          .dtype = rows_.dtype()};
}

void NormalizedRows::add_gradient(Context& context, const Tensor& drows,
                                  const Tensor& dtable) const {
  const Tensor sum = context.workspace(dtable.dtype(), dtable.shape());
  context.kernels.run(
      NormBackward{
          .dx = sum, .dy = drows, .dresidual = dtable, .x = table_, .gain = gain_, .rstd = rstd_},
      context.stream);
  context.kernels.run(Copy{.dst = dtable, .src = sum}, context.stream);
}

WeightView NormalizedRowsCache::view(Context& context, Parameter& table) {
  if (version_ != table.version) {
    view_ = {};
    view_ = NormalizedRows(context, table).view();
    version_ = table.version;
  }
  return view_;
}

}  // namespace piton
