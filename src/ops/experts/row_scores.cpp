#include "ops/experts/row_scores.h"

#include <utility>

namespace piton {

Value row_scores(Context& context, const Value& x, Parameter& weight) {
  const std::int64_t n = x.tensor.dim(0);
  const Tensor y = context.activation(sum_dtype(x.tensor.dtype()), {n, weight.shape[0]});
  {
    const WeightUse use =
        acquire_forward(context.weights, weight, n, context.kernels, context.stream);
    context.kernels.run(LinearForward{.y = y, .x = x.tensor, .weight = use.view()}, context.stream);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  const Kept kept = weight.trainable ? context.tape->keep(x.tensor) : Kept();
  context.tape->record([x_id = x.id, id = result.id, dtype = x.tensor.dtype(), &weight,
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
    backward.defer([&weight, dy, x = backward.for_job(kept)](Context& context) {
      const auto [dweight, overwrites] = context.weights.gradient_buffer(weight, context.stream);
      if (!dweight.defined()) return;
      context.kernels.run(
          LinearBackwardWeight{
              .dweight = dweight, .dy = dy, .x = x.get(), .overwrites = overwrites},
          context.stream);
      context.weights.contribute(weight, context.stream);
    });
  });
  return result;
}

}  // namespace piton
