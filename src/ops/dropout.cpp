#include "ops/dropout.h"

#include <utility>

namespace piton {

namespace {

// a - b, in the memory of a third tensor.
Tensor difference(Context& context, const Tensor& a, const Tensor& b, const Dropout& of_b) {
  const Tensor y = context.activation(a.dtype(), a.shape());
  context.kernels.run(Scale{.y = y, .x = b, .factor = -1}, context.stream);
  context.kernels.run(DropoutAddForward{.y = y, .x = y, .residual = a, .dropout = of_b},
                      context.stream);
  return y;
}

}  // namespace

Value dropout_add(Context& context, const Value& x, Parameter* bias, const Value* residual,
                  const Dropout& dropout) {
  Dropout drawn = dropout;
  if (!context.training) drawn.probability = 0;
  const DType dtype = x.tensor.dtype();
  Tensor y =
      context.activation(residual != nullptr ? residual->tensor.dtype() : dtype, x.tensor.shape());
  {
    WeightUse bias_use;
    if (bias != nullptr)
      bias_use = context.weights.acquire(*bias, WeightForm::kRows, context.stream);
    context.kernels.run(
        DropoutAddForward{.y = y,
                          .x = x.tensor,
                          .bias = bias_use.rows(),
                          .residual = residual != nullptr ? residual->tensor : Tensor(),
                          .dropout = drawn},
        context.stream);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  const std::int64_t residual_id = residual != nullptr ? residual->id : -1;
  context.tape->record([x_id = x.id, residual_id, id = result.id, bias, drawn,
                        dtype](Backward& backward) {
    Context& context = backward.context();
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    Tensor dbias = bias != nullptr ? context.weights.gradient(*bias, context.stream) : Tensor();
    // Without a mask dx is dy, unless x is of another type; the call then only computes the
    // gradient of the bias.
    const bool other = drawn.probability > 0 || dy.dtype() != dtype;
    Tensor dx = other ? context.activation(dtype, dy.shape()) : dy;
    if (other || dbias.defined()) {
      context.kernels.run(DropoutAddBackward{.dx = dx, .dbias = dbias, .dy = dy, .dropout = drawn},
                          context.stream);
    }
    if (dbias.defined()) context.weights.contribute(*bias, context.stream);
    backward.give(residual_id, dy);
    backward.give(x_id, std::move(dx));
  });
  return result;
}

Value converted(Context& context, const Value& x, DType dtype) {
  const auto copy = [](const Context& at, const Tensor& from, DType to) {
    const Tensor y = at.activation(to, from.shape());
    at.kernels.run(Copy{.dst = y, .src = from}, at.stream);
    return y;
  };
  const Tensor y = copy(context, x.tensor, dtype);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record(
      [x_id = x.id, id = result.id, from = x.tensor.dtype(), copy](Backward& backward) {
        const Tensor dy = backward.take(id);
        if (dy.defined() && x_id >= 0) backward.give(x_id, copy(backward.context(), dy, from));
      });
  return result;
}

//   dx = drest + mask (dkept - drest)
MaskedParts split_by_mask(Context& context, const Value& x, const Dropout& dropout) {
  PITON_ASSERT(context.training && dropout.probability > 0, "no mask");
  const Tensor kept = context.activation(x.tensor.dtype(), x.tensor.shape());
  context.kernels.run(DropoutAddForward{.y = kept, .x = x.tensor, .dropout = dropout},
                      context.stream);
  const Tensor rest = difference(context, x.tensor, x.tensor, dropout);
  if (context.tape == nullptr) return {{kept}, {rest}};
  MaskedParts parts{context.tape->output(kept), context.tape->output(rest)};
  context.tape->record([x_id = x.id, kept_id = parts.kept.id, rest_id = parts.rest.id,
                        dropout](Backward& backward) {
    Context& context = backward.context();
    const Tensor dkept = backward.take(kept_id);
    const Tensor drest = backward.take(rest_id);
    PITON_ASSERT(dkept.defined() == drest.defined(), "one part has a gradient");
    if (!dkept.defined() || x_id < 0) return;
    const Tensor dx = difference(context, dkept, drest, {});
    context.kernels.run(DropoutAddForward{.y = dx, .x = dx, .residual = drest, .dropout = dropout},
                        context.stream);
    backward.give(x_id, dx);
  });
  return parts;
}

}  // namespace piton
