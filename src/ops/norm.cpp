#include "ops/norm.h"

#include <utility>

#include "ops/computed_again.h"

namespace piton {
namespace {

struct Normed {
  Tensor y;
  Tensor mean;  // empty without a bias
  Tensor rstd;
};

Normed run_norm(Context& context, const Tensor& x, Parameter& gain, Parameter* bias,
                const NormSettings& settings) {
  const DType sums = sum_dtype(x.dtype());
  Normed normed{.y = context.activation(gain.dtype, x.shape()),
                .mean = bias != nullptr ? context.activation(sums, {x.dim(0)}) : Tensor(),
                .rstd = context.activation(sums, {x.dim(0)})};
  const WeightUse gain_use = context.weights.acquire(gain, WeightForm::kRows, context.stream);
  WeightUse bias_use;
  if (bias != nullptr) bias_use = context.weights.acquire(*bias, WeightForm::kRows, context.stream);
  context.kernels.run(NormForward{.y = normed.y,
                                  .mean = normed.mean,
                                  .rstd = normed.rstd,
                                  .x = x,
                                  .gain = gain_use.rows(),
                                  .bias = bias_use.rows(),
                                  .eps = settings.eps,
                                  .gain_offset = settings.gain_offset},
                      context.stream);
  return normed;
}

// One kernel call computes dx, dgain and dbias, so there is no separate weight job.
Value norm(Context& context, const Value& x, Parameter& gain, Parameter* bias,
           const NormSettings& settings) {
  const auto [y, mean, rstd] = run_norm(context, x.tensor, gain, bias, settings);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  const Kept kept_input = context.tape->keep(x.tensor);
  if (settings.again) {
    context.tape->provide(y, computed_again([plain = context.with_tape(nullptr), kept_input, &gain,
                                             bias, settings]() mutable {
                            return run_norm(plain, kept_input.get(), gain, bias, settings).y;
                          }));
  }
  context.tape->record([x_id = x.id, id = result.id, &gain, bias,
                        gain_offset = settings.gain_offset, kept_x = kept_input,
                        kept_mean = context.tape->keep(mean),
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

Value layer_norm(Context& context, const Value& x, Parameter& gain, Parameter& bias,
                 const NormSettings& settings) {
  return norm(context, x, gain, &bias, settings);
}

Value rms_norm(Context& context, const Value& x, Parameter& gain, const NormSettings& settings) {
  return norm(context, x, gain, nullptr, settings);
}

}  // namespace piton
