#include "ops/norm.h"

#include <utility>

namespace piton {
namespace {

// One kernel call computes dx, dgain and dbias, so there is no separate weight job.
Value norm(Context& context, const Value& x, Parameter& gain, Parameter* bias, double eps,
           double gain_offset) {
  const std::int64_t rows = x.tensor.dim(0);
  const DType sums = sum_dtype(x.tensor.dtype());
  Tensor y = context.activation(x.tensor.dtype(), x.tensor.shape());
  Tensor mean = bias != nullptr ? context.activation(sums, {rows}) : Tensor();
  Tensor rstd = context.activation(sums, {rows});
  {
    const WeightUse gain_use = context.weights.acquire(gain, WeightForm::kRows, context.stream);
    WeightUse bias_use;
    if (bias != nullptr)
      bias_use = context.weights.acquire(*bias, WeightForm::kRows, context.stream);
    context.kernels.run(NormForward{.y = y,
                                    .mean = mean,
                                    .rstd = rstd,
                                    .x = x.tensor,
                                    .gain = gain_use.rows(),
                                    .bias = bias_use.rows(),
                                    .eps = eps,
                                    .gain_offset = gain_offset},
                        context.stream);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([x_id = x.id, id = result.id, &gain, bias, gain_offset,
                        kept_x = context.tape->keep(x.tensor), kept_mean = context.tape->keep(mean),
                        kept_rstd = context.tape->keep(rstd)](Backward& backward) {
    Context& context = backward.context();
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    const Tensor x = kept_x.get();
    Tensor dx = context.activation(x.dtype(), x.shape());
    Tensor dgain = context.weights.gradient(gain, context.stream);
    Tensor dbias = bias != nullptr ? context.weights.gradient(*bias, context.stream) : Tensor();
    {
      const WeightUse use = context.weights.acquire(gain, WeightForm::kRows, context.stream);
      // The gradient of x from the residual path is known already; the kernel adds it to dx.
      context.kernels.run(NormBackward{.dx = dx,
                                       .dgain = dgain,
                                       .dbias = dbias,
                                       .dy = dy.reshape(x.shape()),
                                       .dresidual = backward.take(x_id),
                                       .x = x,
                                       .gain = use.rows(),
                                       .mean = kept_mean.get(),
                                       .rstd = kept_rstd.get(),
                                       .gain_offset = gain_offset},
                          context.stream);
    }
    if (dgain.defined()) context.weights.contribute(gain, context.stream);
    if (dbias.defined()) context.weights.contribute(*bias, context.stream);
    backward.give(x_id, std::move(dx));
  });
  return result;
}

}  // namespace

Value layer_norm(Context& context, const Value& x, Parameter& gain, Parameter& bias, double eps,
                 double gain_offset) {
  return norm(context, x, gain, &bias, eps, gain_offset);
}

Value rms_norm(Context& context, const Value& x, Parameter& gain, double eps, double gain_offset) {
  return norm(context, x, gain, nullptr, eps, gain_offset);
}

}  // namespace piton
