#include "ops/linear/linear_adapter.h"

#include <algorithm>

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

Tensor columns_of(const LinearAdapter& adapter, const Tensor& y) {
  if (!y.defined()) return y;
  return y.slice(1, adapter.first_output, adapter.b.shape[0]);
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

}  // namespace

std::vector<LinearAdapter> drawn_adapters(const Context& context,
                                          std::vector<LinearAdapter> adapters) {
  if (!context.adapters) return {};
  if (!context.training) {
    for (LinearAdapter& adapter : adapters) adapter.dropout.probability = 0;
  }
  return adapters;
}

std::vector<Tensor> adapter_inputs(Context& context, const std::vector<LinearAdapter>& adapters,
                                   const Tensor& x) {
  std::vector<Tensor> inputs;
  for (const LinearAdapter& adapter : adapters) {
    const Tensor y = context.activation(x.dtype(), {x.dim(0), adapter.a.shape[0]});
    const WeightUse use =
        acquire_forward(context.weights, adapter.a, x.dim(0), context.kernels, context.stream);
    context.kernels.run(
        LinearForward{.y = y, .x = masked(context, adapter, x), .weight = use.view()},
        context.stream);
    scale(context, y, adapter.scale);
    inputs.push_back(y);
  }
  return inputs;
}

void write_adapter_outputs(Context& context, const std::vector<LinearAdapter>& adapters,
                           const std::vector<Tensor>& inputs, const Tensor& y,
                           const Tensor& residual) {
  Tensor before = residual;
  std::int64_t covered = 0;
  for (const LinearAdapter& adapter : adapters) covered += adapter.b.shape[0];
  if (covered < y.dim(1) && !before.defined()) {
    context.device.zero(y, context.stream);
    before = y;
  }
  PITON_ASSERT(covered == y.dim(1) || before.raw() == y.raw(),
               "adapters of {} of {} columns, and a residual elsewhere", covered, y.dim(1));
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    Parameter& b = adapters[i].b;
    const WeightUse use =
        acquire_forward(context.weights, b, y.dim(0), context.kernels, context.stream);
    context.kernels.run(LinearForward{.y = columns_of(adapters[i], y),
                                      .x = inputs[i],
                                      .weight = use.view(),
                                      .residual = columns_of(adapters[i], before)},
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
