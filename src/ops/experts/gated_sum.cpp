#include "ops/experts/gated_sum.h"

#include <utility>

namespace piton {

Value gated_sum(Context& context, const Value& a, const Value& x, const Value& gate) {
  const Tensor y = context.activation(a.tensor.dtype(), a.tensor.shape());
  context.kernels.run(GatedSumForward{.y = y, .a = a.tensor, .x = x.tensor, .gate = gate.tensor},
                      context.stream);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([a_id = a.id, x_id = x.id, gate_id = gate.id, id = result.id,
                        kept_x = context.tape->keep(x.tensor),
                        kept_gate = context.tape->keep(gate.tensor)](Backward& backward) {
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    Context& context = backward.context();
    const Tensor x = kept_x.get();
    const Tensor gate = kept_gate.get();
    Tensor dx = context.activation(x.dtype(), x.shape());
    Tensor dgate = context.activation(gate.dtype(), gate.shape());
    context.kernels.run(GatedSumBackward{.dx = dx, .dgate = dgate, .dy = dy, .x = x, .gate = gate},
                        context.stream);
    backward.give(x_id, std::move(dx));
    backward.give(gate_id, std::move(dgate));
    if (a_id >= 0) backward.give(a_id, std::move(dy));
  });
  return result;
}

}  // namespace piton
