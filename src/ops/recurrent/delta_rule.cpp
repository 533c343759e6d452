#include "ops/recurrent/delta_rule.h"

#include <utility>

#include "kernels/recurrent/convolution.h"
#include "kernels/recurrent/delta_rule.h"

namespace piton {
namespace {

void expect_cache_or_tape(const Context& context, const RecurrentRows& rows) {
  PITON_ASSERT(context.tape == nullptr || !rows.cache.given(), "states of a cache go forward only");
}

// Of the values or the gradient of a parameter, which may be empty.
Tensor rows_from(const Tensor& all, std::int64_t begin, std::int64_t size) {
  return all.defined() ? all.slice(0, begin, size) : all;
}

struct KeptRows {
  std::int64_t samples = 1;
  Kept segments;
};

}  // namespace

Value convolved(Context& context, const Value& x, const ParameterRows& weight,
                const RecurrentRows& rows) {
  expect_cache_or_tape(context, rows);
  Parameter& all = weight.parameter;
  const DType dtype = x.tensor.dtype();
  const Shape shape = x.tensor.shape();
  const Tensor y = context.activation(dtype, shape);
  {
    const WeightUse use = context.weights.acquire(all, WeightForm::kRows, context.stream);
    context.kernels.run(ConvolutionForward{.y = y,
                                           .x = x.tensor,
                                           .weight = rows_from(use.rows(), weight.begin, shape[1]),
                                           .segments = rows.segments,
                                           .samples = rows.samples,
                                           .texts = rows.cache.texts,
                                           .state = rows.cache.rows},
                        context.stream);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record(
      [x_id = x.id, id = result.id, dtype, shape, &all, begin = weight.begin,
       kept = context.tape->keep(x.tensor),
       of = KeptRows{rows.samples, context.tape->keep(rows.segments)}](Backward& backward) {
        Context& context = backward.context();
        const Tensor dy = backward.take(id);
        if (!dy.defined()) return;
        Tensor dx = backward.place(x_id, dtype, shape);
        const Tensor dweight = context.weights.gradient(all, context.stream);
        {
          const WeightUse use = context.weights.acquire(all, WeightForm::kRows, context.stream);
          context.kernels.run(ConvolutionBackward{.dx = dx,
                                                  .dweight = rows_from(dweight, begin, shape[1]),
                                                  .dy = dy.reshape(shape),
                                                  .x = kept.get(),
                                                  .weight = rows_from(use.rows(), begin, shape[1]),
                                                  .segments = of.segments.get(),
                                                  .samples = of.samples},
                              context.stream);
        }
        if (dweight.defined()) context.weights.contribute(all, context.stream);
        backward.give(x_id, std::move(dx));
      });
  return result;
}

Value delta_rule(Context& context, const DeltaRows& inputs, const ParameterRows& rate,
                 const ParameterRows& bias, const RecurrentRows& rows) {
  expect_cache_or_tape(context, rows);
  DeltaRuleInput in{.q = inputs.q.tensor,
                    .k = inputs.k.tensor,
                    .v = inputs.v.tensor,
                    .decay = inputs.decay.tensor,
                    .strength = inputs.strength.tensor,
                    .segments = rows.segments,
                    .samples = rows.samples};
  const Tensor out = context.activation(in.v.dtype(), in.v.shape());
  const std::int64_t heads = in.v.dim(1);
  {
    const auto acquire = [&](const ParameterRows& of) {
      return context.weights.acquire(of.parameter, WeightForm::kRows, context.stream);
    };
    const WeightUse rates = acquire(rate), biases = acquire(bias);
    in.rate = rows_from(rates.rows(), rate.begin, heads);
    in.bias = rows_from(biases.rows(), bias.begin, heads);
    context.kernels.run(
        DeltaRuleForward{
            .out = out, .in = in, .texts = rows.cache.texts, .state = rows.cache.states},
        context.stream);
  }
  if (context.tape == nullptr) return {out};
  Value result = context.tape->output(out);
  const auto keep = [&](const Tensor& tensor) { return context.tape->keep(tensor); };
  struct KeptInputs {
    Kept q, k, v, decay, strength;
  };
  context.tape->record(
      [id = result.id, q_id = inputs.q.id, k_id = inputs.k.id, v_id = inputs.v.id,
       decay_id = inputs.decay.id, strength_id = inputs.strength.id, rate, bias, heads,
       kept = KeptInputs{keep(in.q), keep(in.k), keep(in.v), keep(in.decay), keep(in.strength)},
       of = KeptRows{rows.samples, keep(rows.segments)}](Backward& backward) {
        Context& context = backward.context();
        const Tensor dout = backward.take(id);
        if (!dout.defined()) return;
        const auto place = [&](std::int64_t part, const Tensor& like) {
          return backward.place(part, like.dtype(), like.shape());
        };
        const DeltaRuleInput in{.q = kept.q.get(),
                                .k = kept.k.get(),
                                .v = kept.v.get(),
                                .decay = kept.decay.get(),
                                .strength = kept.strength.get(),
                                .segments = of.segments.get(),
                                .samples = of.samples};
        const auto gradient = [&](const ParameterRows& part) {
          return rows_from(context.weights.gradient(part.parameter, context.stream), part.begin,
                           heads);
        };
        DeltaRuleBackward call{.dq = place(q_id, in.q),
                               .dk = place(k_id, in.k),
                               .dv = place(v_id, in.v),
                               .ddecay = place(decay_id, in.decay),
                               .dstrength = place(strength_id, in.strength),
                               .drate = gradient(rate),
                               .dbias = gradient(bias),
                               .dout = dout.reshape(in.v.shape()),
                               .in = in};
        {
          const auto acquire = [&](const ParameterRows& part) {
            return context.weights.acquire(part.parameter, WeightForm::kRows, context.stream);
          };
          const WeightUse rates = acquire(rate), biases = acquire(bias);
          call.in.rate = rows_from(rates.rows(), rate.begin, heads);
          call.in.bias = rows_from(biases.rows(), bias.begin, heads);
          context.kernels.run(call, context.stream);
        }
        if (call.drate.defined()) context.weights.contribute(rate.parameter, context.stream);
        if (call.dbias.defined()) context.weights.contribute(bias.parameter, context.stream);
        backward.give(q_id, std::move(call.dq));
        backward.give(k_id, std::move(call.dk));
        backward.give(v_id, std::move(call.dv));
        backward.give(decay_id, std::move(call.ddecay));
        backward.give(strength_id, std::move(call.dstrength));
      });
  return result;
}

Value gated(Context& context, const Value& x, const Value& gate, ActivationKind kind) {
  const DType dtype = x.tensor.dtype();
  const Shape shape = x.tensor.shape();
  const Tensor y = context.activation(dtype, shape);
  context.kernels.run(ActivationForward{.y = y, .x = gate.tensor, .up = x.tensor, .kind = kind},
                      context.stream);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([id = result.id, x_id = x.id, gate_id = gate.id, dtype, shape, kind,
                        kept_x = context.tape->keep(x.tensor),
                        kept_gate = context.tape->keep(gate.tensor)](Backward& backward) {
    Context& context = backward.context();
    const Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    Tensor dx = backward.place(x_id, dtype, shape);
    Tensor dgate = backward.place(gate_id, dtype, shape);
    context.kernels.run(ActivationBackward{.dx = dgate,
                                           .dup = dx,
                                           .dy = dy.reshape(shape),
                                           .x = kept_gate.get(),
                                           .up = kept_x.get(),
                                           .kind = kind},
                        context.stream);
    backward.give(x_id, std::move(dx));
    backward.give(gate_id, std::move(dgate));
  });
  return result;
}

}  // namespace piton
