#include "ops/linear/linear_adapter.h"

#include <algorithm>
#include <utility>

namespace piton {
namespace {

// dropout(x), [n, in]: x itself without dropout.
Tensor masked(Context& context, const LinearAdapter& adapter, const Tensor& x) {
  if (adapter.dropout.probability == 0) return x;
  const Tensor y = context.activation(x.dtype(), x.shape());
  context.kernels.run(DropoutAddForward{.y = y, .x = x, .dropout = adapter.dropout},
                      context.stream);
  return y;
}

void scale(Context& context, const Tensor& x, double factor) {
  if (factor != 1) context.kernels.run(Scale{.y = x, .x = x, .factor = factor}, context.stream);
}

// [out] of y [f] or [n, out] of y [n, f].
Tensor columns_of(const LinearAdapter& adapter, const Tensor& y) {
  if (!y.defined()) return y;
  return y.slice(y.ndim() - 1, adapter.first_output, adapter.b.shape[0]);
}

// Those of the adapter, of x [n, any].
Tensor rows_of_adapter(const LinearAdapter& adapter, const Tensor& x) {
  return adapter.rows ? x.slice(0, adapter.rows->begin, adapter.rows->size) : x;
}

// Of n rows, how many the adapter has.
std::int64_t row_count(const LinearAdapter& adapter, std::int64_t n) {
  return adapter.rows ? adapter.rows->size : n;
}

// dW += dy^T x
void add_product(Context& context, Parameter& parameter, const Tensor& dy, const Tensor& x) {
  const auto [dweight, overwrites] = context.weights.gradient_buffer(parameter, context.stream);
  if (!dweight.defined()) return;
  context.kernels.run(
      LinearBackwardWeight{.dweight = dweight, .dy = dy, .x = x, .overwrites = overwrites},
      context.stream);
  context.weights.contribute(parameter, context.stream);
}

// Rows of W + scale B A that exist at the same time.
constexpr std::int64_t kMeasuredRows = 256;

// [out] of the rows of this rank, over its columns.
Tensor squares_of_rows(Context& context, Parameter& weight, const LinearAdapter& adapter) {
  const WeightUse w = context.weights.acquire(weight, WeightForm::kRows, context.stream);
  const WeightUse a = context.weights.acquire(adapter.a, WeightForm::kRows, context.stream);
  const WeightUse b = context.weights.acquire(adapter.b, WeightForm::kRows, context.stream);
  PITON_ASSERT(w.view().form == WeightForm::kRows, "{}: no plain rows", weight.name);
  const std::int64_t out = adapter.b.shape[0];
  const Tensor squares = context.workspace(sum_dtype(weight.dtype), {out});
  for (std::int64_t begin = 0; begin < out; begin += kMeasuredRows) {
    const std::int64_t size = std::min(kMeasuredRows, out - begin);
    const Tensor factors = context.workspace(adapter.b.dtype, {size, adapter.b.shape[1]});
    const Tensor rows = context.workspace(weight.dtype, {size, weight.shape[1]});
    context.kernels.run(
        Scale{.y = factors, .x = b.rows().slice(0, begin, size), .factor = adapter.scale},
        context.stream);
    context.kernels.run(
        LinearBackwardInput{.dx = rows,
                            .dy = factors,
                            .weight = a.view(),
                            .residual = w.rows().slice(0, adapter.first_output + begin, size)},
        context.stream);
    context.kernels.run(RowSquares{.squares = squares.slice(0, begin, size), .rows = rows},
                        context.stream);
  }
  return squares;
}

// y = the columns of x at their lengths; columns without a magnitude as they are, unless y is x.
void rescale(Context& context, const std::vector<LinearAdapter>& adapters, const Tensor& y,
             const Tensor& x, Parameter* bias) {
  const bool in_place = y.raw() == x.raw();
  std::int64_t end = 0;  // of the columns that are written
  const auto copy_until = [&](std::int64_t first) {
    if (first > end && !in_place) {
      context.kernels.run(
          Copy{.dst = y.slice(1, end, first - end), .src = x.slice(1, end, first - end)},
          context.stream);
    }
  };
  WeightUse offset;
  if (bias != nullptr) offset = context.weights.acquire(*bias, WeightForm::kRows, context.stream);
  for (const LinearAdapter& adapter : adapters) {
    if (adapter.magnitude == nullptr) continue;
    copy_until(adapter.first_output);
    end = adapter.first_output + adapter.b.shape[0];
    const WeightUse magnitude =
        context.weights.acquire(*adapter.magnitude, WeightForm::kRows, context.stream);
    PITON_ASSERT(in_place || !adapter.rows, "lengths of some rows are set in place");
    context.kernels.run(MagnitudeForward{.y = columns_of(adapter, rows_of_adapter(adapter, y)),
                                         .x = columns_of(adapter, rows_of_adapter(adapter, x)),
                                         .magnitude = magnitude.rows(),
                                         .squares = adapter.lengths->squares,
                                         .bias = columns_of(adapter, offset.rows())},
                        context.stream);
  }
  copy_until(x.dim(1));
}

// A weight job: dm += the sum over rows of dy (x - bias) / length.
void add_gradients_of_magnitudes(Context& context, const std::vector<LinearAdapter>& adapters,
                                 const Tensor& dy, const Tensor& x, Parameter* bias) {
  WeightUse offset;
  if (bias != nullptr) offset = context.weights.acquire(*bias, WeightForm::kRows, context.stream);
  for (const LinearAdapter& adapter : adapters) {
    if (adapter.magnitude == nullptr) continue;
    const Tensor sums = context.weights.gradient(*adapter.magnitude, context.stream);
    if (!sums.defined()) continue;
    context.kernels.run(MagnitudeGradient{.dmagnitude = sums,
                                          .dy = columns_of(adapter, dy),
                                          .x = columns_of(adapter, x),
                                          .squares = adapter.lengths->squares,
                                          .bias = columns_of(adapter, offset.rows())},
                        context.stream);
    context.weights.contribute(*adapter.magnitude, context.stream);
  }
}

}  // namespace

void measure_rows(Context& context, Parameter& weight, const std::vector<LinearAdapter>& adapters,
                  Communicator* columns) {
  if (!context.adapters) return;
  for (const LinearAdapter& adapter : adapters) {
    if (adapter.magnitude == nullptr) continue;
    AdaptedLengths& lengths = *adapter.lengths;
    const std::array versions{weight.version, adapter.a.version, adapter.b.version};
    if (lengths.squares.defined() && lengths.versions == versions) continue;
    lengths = {squares_of_rows(context, weight, adapter), versions};
    if (columns == nullptr || columns->size() == 1) continue;
    const Event summed = columns->all_reduce(lengths.squares, Reduction::kSum, context.stream);
    context.arena.hold(lengths.squares, summed.fence());
    context.await(summed);
  }
}

Value with_magnitudes(Context& context, const Value& x, const std::vector<LinearAdapter>& adapters,
                      Parameter* bias) {
  const auto has_one = [](const LinearAdapter& one) { return one.magnitude != nullptr; };
  if (!context.adapters || !std::ranges::any_of(adapters, has_one)) return x;
  const bool taped = context.tape != nullptr;
  const Tensor y = taped ? context.activation(x.tensor.dtype(), x.tensor.shape()) : x.tensor;
  rescale(context, adapters, y, x.tensor, bias);
  if (!taped) return {y};
  Value result = context.tape->output(y);
  context.tape->record([x_id = x.id, id = result.id, kept = context.tape->keep(x.tensor), adapters,
                        bias](Backward& backward) {
    Context& context = backward.context();
    const Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    const Tensor dx = context.activation(dy.dtype(), dy.shape());
    rescale(context, adapters, dx, dy, nullptr);
    backward.give(x_id, dx);
    backward.defer([adapters, dy, x = backward.for_job(kept), bias](Context& context) {
      add_gradients_of_magnitudes(context, adapters, dy, x.get(), bias);
    });
  });
  return result;
}

std::vector<LinearAdapter> drawn_adapters(const Context& context,
                                          std::vector<LinearAdapter> adapters) {
  if (!context.adapters) return {};
  for (LinearAdapter& adapter : adapters) {
    PITON_ASSERT(!adapter.rows || context.tape == nullptr, "gradients of adapters of some rows");
    if (!context.training) adapter.dropout.probability = 0;
  }
  return adapters;
}

std::vector<Tensor> adapter_inputs(Context& context, const std::vector<LinearAdapter>& adapters,
                                   const Tensor& x) {
  std::vector<Tensor> inputs;
  for (const LinearAdapter& adapter : adapters) {
    const Tensor mine = rows_of_adapter(adapter, x);
    const Tensor y = context.activation(x.dtype(), {mine.dim(0), adapter.a.shape[0]});
    const WeightUse use =
        acquire_forward(context.weights, adapter.a, mine.dim(0), context.kernels, context.stream);
    context.kernels.run(
        LinearForward{.y = y, .x = masked(context, adapter, mine), .weight = use.view()},
        context.stream);
    scale(context, y, adapter.scale);
    inputs.push_back(y);
  }
  return inputs;
}

AdaptersOfRows adapters_of_rows(const std::vector<LinearAdapter>& adapters,
                                const std::vector<Tensor>& inputs, const RowRange& range) {
  AdaptersOfRows part;
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    LinearAdapter adapter = adapters[i];
    if (!adapter.rows) {
      part.list.push_back(adapter);
      part.inputs.push_back(inputs[i].slice(0, range.begin, range.size));
      continue;
    }
    const std::int64_t begin = std::max(range.begin, adapter.rows->begin);
    const std::int64_t end =
        std::min(range.begin + range.size, adapter.rows->begin + adapter.rows->size);
    if (begin >= end) continue;
    part.inputs.push_back(inputs[i].slice(0, begin - adapter.rows->begin, end - begin));
    adapter.rows = RowRange{begin - range.begin, end - begin};
    part.list.push_back(adapter);
  }
  return part;
}

void write_adapter_outputs(Context& context, const std::vector<LinearAdapter>& adapters,
                           const std::vector<Tensor>& inputs, const Tensor& y,
                           const Tensor& residual) {
  Tensor before = residual;
  std::int64_t covered = 0;  // elements
  for (const LinearAdapter& adapter : adapters)
    covered += adapter.b.shape[0] * row_count(adapter, y.dim(0));
  if (covered < y.elements()) {
    if (!before.defined()) {
      context.device.zero(y, context.stream);
    } else if (before.raw() != y.raw()) {
      context.kernels.run(Copy{.dst = y, .src = before}, context.stream);
    }
    before = y;
  }
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    const LinearAdapter& adapter = adapters[i];
    const auto part = [&](const Tensor& of) {
      return of.defined() ? columns_of(adapter, rows_of_adapter(adapter, of)) : of;
    };
    const WeightUse use = acquire_forward(context.weights, adapter.b, row_count(adapter, y.dim(0)),
                                          context.kernels, context.stream);
    context.kernels.run(
        LinearForward{.y = part(y), .x = inputs[i], .weight = use.view(), .residual = part(before)},
        context.stream);
  }
}

std::vector<Tensor> adapter_input_gradients(Context& context,
                                            const std::vector<LinearAdapter>& adapters,
                                            const Tensor& dy) {
  std::vector<Tensor> gradients;
  for (const LinearAdapter& adapter : adapters) {
    const Tensor dx = context.activation(dy.dtype(), {dy.dim(0), adapter.b.shape[1]});
    const WeightUse use = context.weights.acquire(adapter.b, WeightForm::kBackward, context.stream);
    context.kernels.run(
        LinearBackwardInput{.dx = dx, .dy = columns_of(adapter, dy), .weight = use.view()},
        context.stream);
    scale(context, dx, adapter.scale);
    gradients.push_back(dx);
  }
  return gradients;
}

void add_adapter_dx(Context& context, const std::vector<LinearAdapter>& adapters,
                    const std::vector<Tensor>& input_gradients, const Tensor& dx,
                    std::int64_t first_row) {
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    Dropout dropout = adapters[i].dropout;
    const bool masks = dropout.probability > 0;
    dropout.rows.first_row = first_row;
    const Tensor part = masks ? context.activation(dx.dtype(), dx.shape()) : dx;
    const WeightUse use =
        context.weights.acquire(adapters[i].a, WeightForm::kBackward, context.stream);
    context.kernels.run(LinearBackwardInput{.dx = part,
                                            .dy = input_gradients[i],
                                            .weight = use.view(),
                                            .residual = masks ? Tensor() : dx},
                        context.stream);
    if (!masks) continue;
    context.kernels.run(DropoutAddForward{.y = dx, .x = part, .residual = dx, .dropout = dropout},
                        context.stream);
  }
}

void add_gradient_of_a(Context& context, const std::vector<LinearAdapter>& adapters,
                       const std::vector<Tensor>& input_gradients, const Tensor& x) {
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    if (!adapters[i].a.trainable) continue;
    add_product(context, adapters[i].a, input_gradients[i], masked(context, adapters[i], x));
  }
}

void add_gradient_of_b(Context& context, const std::vector<LinearAdapter>& adapters,
                       const std::vector<Kept>& inputs, const Tensor& dy) {
  for (std::size_t i = 0; i < adapters.size(); ++i)
    add_product(context, adapters[i].b, columns_of(adapters[i], dy), inputs[i].get());
}

}  // namespace piton
