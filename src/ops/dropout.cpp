#include "ops/dropout.h"

#include <utility>

namespace piton {

Value dropout_add(Context& context, const Value& x, Parameter* bias, const Value* residual,
                  const Dropout& dropout) {
  Dropout drawn = dropout;
  if (!context.training) drawn.probability = 0;
  Tensor y = context.activation(x.tensor.dtype(), x.tensor.shape());
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
  context.tape->record([x_id = x.id, residual_id, id = result.id, bias, drawn](Backward& backward) {
    Context& context = backward.context();
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    Tensor dbias = bias != nullptr ? context.weights.gradient(*bias, context.stream) : Tensor();
    // Without a mask dx is dy; the call then only computes the gradient of the bias.
    Tensor dx = drawn.probability > 0 ? context.activation(dy.dtype(), dy.shape()) : dy;
    if (drawn.probability > 0 || dbias.defined()) {
      context.kernels.run(DropoutAddBackward{.dx = dx, .dbias = dbias, .dy = dy, .dropout = drawn},
                          context.stream);
    }
    if (dbias.defined()) context.weights.contribute(*bias, context.stream);
    backward.give(residual_id, dy);
    backward.give(x_id, std::move(dx));
  });
  return result;
}

}  // namespace piton
