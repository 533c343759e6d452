#include "ops/activation.h"

#include <utility>

#include "ops/computed_again.h"

namespace piton {

Value activated(Context& context, const Value& x, const Tensor& y, ActivationKind kind,
                const Tensor& used) {
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([x_id = x.id, id = result.id, kind, kept = context.tape->keep(x.tensor),
                        used = context.tape->keep(used)](Backward& backward) {
    Context& context = backward.context();
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    const Tensor x = kept.get();
    Tensor dx = context.activation(x.dtype(), x.shape());
    context.kernels.run(
        ActivationBackward{.dx = dx, .dy = dy, .x = x, .kind = kind, .used = used.get()},
        context.stream);
    backward.give(x_id, std::move(dx));
  });
  return result;
}

Value activation_of(Context& context, const Value& x, ActivationKind kind, const Tensor& used) {
  const Tensor y =
      context.tape != nullptr ? context.activation(x.tensor.dtype(), x.tensor.shape()) : x.tensor;
  context.kernels.run(ActivationForward{.y = y, .x = x.tensor, .kind = kind, .used = used},
                      context.stream);
  return activated(context, x, y, kind, used);
}

Value gated_activation(Context& context, const Value& gate_up, ActivationKind kind,
                       const GateRule& rule, const Tensor& used) {
  const std::int64_t width = gate_up.tensor.dim(1) / 2;
  const auto half = [width](const Tensor& both, int which) {
    return both.slice(1, which * width, width);
  };
  const auto run = [half, width, kind, rule](Context& context, const Tensor& x,
                                             const Tensor& used) {
    Tensor y = context.activation(x.dtype(), {x.dim(0), width});
    context.kernels.run(
        ActivationForward{
            .y = y, .x = half(x, 0), .up = half(x, 1), .kind = kind, .gate = rule, .used = used},
        context.stream);
    return y;
  };
  const Tensor y = run(context, gate_up.tensor, used);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  const Kept kept = context.tape->keep(gate_up.tensor);
  const Kept kept_used = context.tape->keep(used);
  if (context.recompute.activation) {
    context.tape->provide(
        y, computed_again([plain = context.with_tape(nullptr), kept, kept_used, run]() mutable {
          return run(plain, kept.get(), kept_used.get());
        }));
  }
  context.tape->record(
      [x_id = gate_up.id, id = result.id, kind, rule, half, kept, kept_used](Backward& backward) {
        Context& context = backward.context();
        Tensor dy = backward.take(id);
        if (!dy.defined()) return;
        const Tensor x = kept.get();
        Tensor d = context.activation(x.dtype(), x.shape());
        context.kernels.run(ActivationBackward{.dx = half(d, 0),
                                               .dup = half(d, 1),
                                               .dy = dy,
                                               .x = half(x, 0),
                                               .up = half(x, 1),
                                               .kind = kind,
                                               .gate = rule,
                                               .used = kept_used.get()},
                            context.stream);
        backward.give(x_id, std::move(d));
      });
  return result;
}

Value tanh_of(Context& context, const Value& x) {
  const DType dtype = x.tensor.dtype();
  const DType sums = sum_dtype(dtype);
  const Tensor wide = context.activation(sums, x.tensor.shape());
  context.kernels.run(Copy{.dst = wide, .src = x.tensor}, context.stream);
  context.kernels.run(SoftCapForward{.y = wide, .x = wide, .cap = 1}, context.stream);
  Tensor y = wide;
  if (dtype != sums) {
    y = context.activation(dtype, x.tensor.shape());
    context.kernels.run(Copy{.dst = y, .src = wide}, context.stream);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record(
      [x_id = x.id, id = result.id, kept = context.tape->keep(wide)](Backward& backward) {
        const Tensor dy = backward.take(id);
        if (!dy.defined() || x_id < 0) return;
        Context& context = backward.context();
        const Tensor dx = context.activation(dy.dtype(), dy.shape());
        context.kernels.run(SoftCapBackward{.dx = dx, .dy = dy, .y = kept.get(), .cap = 1},
                            context.stream);
        backward.give(x_id, dx);
      });
  return result;
}

}  // namespace piton
