#include "ops/experts/row_scores.h"

#include <utility>

namespace piton {

Value row_scores(Context& context, const Value& x, Parameter& weight, Parameter* bias) {
  const std::int64_t n = x.tensor.dim(0);
  const Tensor y = context.activation(sum_dtype(x.tensor.dtype()), {n, weight.shape[0]});
  {
    const WeightUse use =
        acquire_forward(context.weights, weight, n, context.kernels, context.stream);
    WeightUse bias_use;
    if (bias != nullptr)
      bias_use = context.weights.acquire(*bias, WeightForm::kRows, context.stream);
    context.kernels.run(
        LinearForward{.y = y, .x = x.tensor, .weight = use.view(), .bias = bias_use.rows()},
        context.stream);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  const Kept kept = weight.trainable ? context.tape->keep(x.tensor) : Kept();
  context.tape->record([x_id = x.id, id = result.id, dtype = x.tensor.dtype(), &weight, bias,
                        kept](Backward& backward) {
    const Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    Context& context = backward.context();
    if (x_id >= 0) {
      Tensor dx = context.activation(dtype, {dy.dim(0), weight.shape[1]});
      const WeightUse use = context.weights.acquire(weight, WeightForm::kBackward, context.stream);
      context.kernels.run(LinearBackwardInput{.dx = dx, .dy = dy, .weight = use.view()},
                          context.stream);
      backward.give(x_id, std::move(dx));
    }
    if (!weight.trainable) return;
    backward.defer([&weight, bias, dy, x = backward.for_job(kept)](Context& context) {
      const auto [dweight, overwrites] = context.weights.gradient_buffer(weight, context.stream);
      if (!dweight.defined()) return;
      Tensor dbias;
      if (bias != nullptr) dbias = context.weights.gradient(*bias, context.stream);
      context.kernels.run(
          LinearBackwardWeight{
              .dweight = dweight, .dbias = dbias, .dy = dy, .x = x.get(), .overwrites = overwrites},
          context.stream);
      context.weights.contribute(weight, context.stream);
      if (dbias.defined()) context.weights.contribute(*bias, context.stream);
    });
  });
  return result;
}

}  // namespace piton
