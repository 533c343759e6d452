#include "ops/recurrent/delta_rule.h"

#include <utility>

#include "kernels/recurrent/convolution.h"
#include "kernels/recurrent/delta_rule.h"

namespace piton {
namespace {

void expect_cache_or_tape(const Context& context, const RecurrentRows& rows) {
  PITON_ASSERT(context.tape == nullptr || !rows.cache.given(), "states of a cache go forward only");
}

// The values of some rows of a parameter while a kernel reads them; empty without a parameter.
class ReadRows {
 public:
  ReadRows(Context& context, const std::optional<ParameterRows>& of, std::int64_t size) {
    if (!of) return;
    use_.emplace(context.weights.acquire(of->parameter, WeightForm::kRows, context.stream));
    rows_ = use_->rows().slice(0, of->begin, size);
  }
  const Tensor& rows() const { return rows_; }

 private:
  std::optional<WeightUse> use_;
  Tensor rows_;
};

// The gradient of some rows of a parameter; empty without one, or if it is frozen.
class GradientRows {
 public:
  GradientRows(Context& context, const std::optional<ParameterRows>& of, std::int64_t size) {
    if (!of) return;
    parameter_ = &of->parameter;
    const Tensor all = context.weights.gradient(*parameter_, context.stream);
    if (all.defined()) rows_ = all.slice(0, of->begin, size);
  }
  const Tensor& rows() const { return rows_; }
  void contribute(Context& context) const {
    if (rows_.defined()) context.weights.contribute(*parameter_, context.stream);
  }

 private:
  Parameter* parameter_ = nullptr;
  Tensor rows_;
};

struct KeptRows {
  std::int64_t samples = 1;
  Kept segments;
};

// [hv] each; `skip` of a state space alone.
struct RuleParameters {
  ParameterRows rate;
  ParameterRows bias;
  std::optional<ParameterRows> skip;
};

// What both rules give. A state space has no `strength`.
Value after_states(Context& context, StateRule rule, const DeltaRows& inputs,
                   const RuleParameters& parameters, const RecurrentRows& rows) {
  expect_cache_or_tape(context, rows);
  DeltaRuleInput in{.q = inputs.q.tensor,
                    .k = inputs.k.tensor,
                    .v = inputs.v.tensor,
                    .decay = inputs.decay.tensor,
                    .strength = inputs.strength.tensor,
                    .segments = rows.segments,
                    .samples = rows.samples,
                    .rule = rule};
  const Tensor out = context.activation(in.v.dtype(), in.v.shape());
  const std::int64_t heads = in.v.dim(1);
  {
    const ReadRows rate(context, parameters.rate, heads), bias(context, parameters.bias, heads);
    const ReadRows skip(context, parameters.skip, heads);
    in.rate = rate.rows();
    in.bias = bias.rows();
    in.skip = skip.rows();
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
       decay_id = inputs.decay.id, strength_id = inputs.strength.id, rule, parameters, heads,
       kept = KeptInputs{keep(in.q), keep(in.k), keep(in.v), keep(in.decay), keep(in.strength)},
       of = KeptRows{rows.samples, keep(rows.segments)}](Backward& backward) {
        Context& context = backward.context();
        const Tensor dout = backward.take(id);
        if (!dout.defined()) return;
        const auto place = [&](std::int64_t part, const Tensor& like) {
          return like.defined() ? backward.place(part, like.dtype(), like.shape()) : Tensor();
        };
        const GradientRows drate(context, parameters.rate, heads);
        const GradientRows dbias(context, parameters.bias, heads);
        const GradientRows dskip(context, parameters.skip, heads);
        DeltaRuleInput in{.q = kept.q.get(),
                          .k = kept.k.get(),
                          .v = kept.v.get(),
                          .decay = kept.decay.get(),
                          .strength = kept.strength.get(),
                          .segments = of.segments.get(),
                          .samples = of.samples,
                          .rule = rule};
        DeltaRuleBackward call{.dq = place(q_id, in.q),
                               .dk = place(k_id, in.k),
                               .dv = place(v_id, in.v),
                               .ddecay = place(decay_id, in.decay),
                               .dstrength = place(strength_id, in.strength),
                               .drate = drate.rows(),
                               .dbias = dbias.rows(),
                               .dskip = dskip.rows(),
                               .dout = dout.reshape(in.v.shape())};
        {
          const ReadRows rate(context, parameters.rate, heads);
          const ReadRows bias(context, parameters.bias, heads);
          const ReadRows skip(context, parameters.skip, heads);
          in.rate = rate.rows();
          in.bias = bias.rows();
          in.skip = skip.rows();
          call.in = in;
          context.kernels.run(call, context.stream);
        }
        for (const GradientRows* one : {&drate, &dbias, &dskip}) one->contribute(context);
        backward.give(q_id, std::move(call.dq));
        backward.give(k_id, std::move(call.dk));
        backward.give(v_id, std::move(call.dv));
        backward.give(decay_id, std::move(call.ddecay));
        if (rule == StateRule::kDelta) backward.give(strength_id, std::move(call.dstrength));
      });
  return result;
}

}  // namespace

Value convolved(Context& context, const Value& x, const FilterParameters& filters,
                const RecurrentRows& rows) {
  expect_cache_or_tape(context, rows);
  const DType dtype = x.tensor.dtype();
  const Shape shape = x.tensor.shape();
  const Tensor y = context.activation(dtype, shape);
  {
    const ReadRows weight(context, filters.weight, shape[1]);
    const ReadRows bias(context, filters.bias, shape[1]);
    context.kernels.run(ConvolutionForward{.y = y,
                                           .x = x.tensor,
                                           .weight = weight.rows(),
                                           .bias = bias.rows(),
                                           .segments = rows.segments,
                                           .samples = rows.samples,
                                           .texts = rows.cache.texts,
                                           .state = rows.cache.rows,
                                           .silu = filters.silu},
                        context.stream);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record(
      [x_id = x.id, id = result.id, dtype, shape, filters, kept = context.tape->keep(x.tensor),
       of = KeptRows{rows.samples, context.tape->keep(rows.segments)}](Backward& backward) {
        Context& context = backward.context();
        const Tensor dy = backward.take(id);
        if (!dy.defined()) return;
        Tensor dx = backward.place(x_id, dtype, shape);
        const GradientRows dweight(context, filters.weight, shape[1]);
        const GradientRows dbias(context, filters.bias, shape[1]);
        {
          const ReadRows weight(context, filters.weight, shape[1]);
          const ReadRows bias(context, filters.bias, shape[1]);
          context.kernels.run(ConvolutionBackward{.dx = dx,
                                                  .dweight = dweight.rows(),
                                                  .dbias = dbias.rows(),
                                                  .dy = dy.reshape(shape),
                                                  .x = kept.get(),
                                                  .weight = weight.rows(),
                                                  .bias = bias.rows(),
                                                  .segments = of.segments.get(),
                                                  .samples = of.samples,
                                                  .silu = filters.silu},
                              context.stream);
        }
        for (const GradientRows* one : {&dweight, &dbias}) one->contribute(context);
        backward.give(x_id, std::move(dx));
      });
  return result;
}

Value delta_rule(Context& context, const DeltaRows& inputs, const ParameterRows& rate,
                 const ParameterRows& bias, const RecurrentRows& rows) {
  return after_states(context, StateRule::kDelta, inputs, {rate, bias, {}}, rows);
}

Value state_space(Context& context, const StateSpaceRows& inputs,
                  const StateSpaceParameters& parameters, const RecurrentRows& rows) {
  return after_states(
      context, StateRule::kStateSpace,
      {.q = inputs.q, .k = inputs.k, .v = inputs.v, .decay = inputs.step, .strength = {}},
      {parameters.rate, parameters.bias, parameters.skip}, rows);
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
