#include "ops/experts/expert_linear.h"

#include <utility>

namespace piton {

namespace {

struct WeightJob {
  ExpertWeights matrices;
  Tensor dy;
  Kept x;
  Kept first_rows;

  void run(Context& context) const {
    Parameter& weight = matrices.weight;
    const auto [dweight, overwrites] = context.weights.gradient_buffer(weight, context.stream);
    Tensor dbias;
    if (matrices.bias != nullptr) dbias = context.weights.gradient(*matrices.bias, context.stream);
    if (!dweight.defined()) return;
    context.kernels.run(LinearBackwardWeight{.dweight = dweight,
                                             .dbias = matrices.adds_bias ? dbias : Tensor(),
                                             .dy = dy,
                                             .x = x.get(),
                                             .overwrites = overwrites,
                                             .first_rows = first_rows.get()},
                        context.stream);
    context.weights.contribute(weight, context.stream);
    if (dbias.defined()) context.weights.contribute(*matrices.bias, context.stream);
  }
};

}  // namespace

Value expert_linear(Context& context, const Value& x, const ExpertWeights& matrices,
                    const Tensor& first_rows) {
  Parameter& weight = matrices.weight;
  const std::int64_t out = weight.shape[0] / weight.matrices;
  const Tensor y = context.activation(x.tensor.dtype(), {x.tensor.dim(0), out});
  {
    // Each matrix sees its share of the rows.
    const std::int64_t rows = (x.tensor.dim(0) + weight.matrices - 1) / weight.matrices;
    const WeightUse use =
        acquire_forward(context.weights, weight, rows, context.kernels, context.stream);
    WeightUse bias_use;
    if (matrices.bias != nullptr && matrices.adds_bias)
      bias_use = context.weights.acquire(*matrices.bias, WeightForm::kRows, context.stream);
    context.kernels.run(LinearForward{.y = y,
                                      .x = x.tensor,
                                      .weight = use.view(),
                                      .bias = bias_use.rows(),
                                      .first_rows = first_rows},
                        context.stream);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  const Kept kept_x = weight.trainable ? context.tape->keep(x.tensor) : Kept();
  context.tape->record([x_id = x.id, id = result.id, &weight, matrices, kept_x,
                        kept_first = context.tape->keep(first_rows)](Backward& backward) {
    const Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    Context& context = backward.context();
    if (x_id >= 0) {
      Tensor dx = context.activation(dy.dtype(), {dy.dim(0), weight.shape[1]});
      const WeightUse use = context.weights.acquire(weight, WeightForm::kBackward, context.stream);
      context.kernels.run(
          LinearBackwardInput{
              .dx = dx, .dy = dy, .weight = use.view(), .first_rows = kept_first.get()},
          context.stream);
      backward.give(x_id, std::move(dx));
    }
    if (!weight.trainable) return;
    backward.defer([job = WeightJob{matrices, dy, backward.for_job(kept_x), kept_first}](
                       Context& context) { job.run(context); });
  });
  return result;
}

}  // namespace piton
