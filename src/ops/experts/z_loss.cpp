#include "ops/experts/z_loss.h"

#include <utility>

#include "kernels/experts.h"

namespace piton {

void add_z_loss(Context& context, const Value& logits, double factor) {
  if (factor == 0) return;
  if (context.balance.z_sum.defined()) {
    context.kernels.run(RouterZLoss{.sum = context.balance.z_sum, .logits = logits.tensor},
                        context.stream);
  }
  if (context.tape == nullptr || !context.balance.scale.defined()) return;
  context.tape->record([id = logits.id, logits = context.tape->keep(logits.tensor),
                        scale = context.tape->keep(context.balance.scale),
                        factor](Backward& backward) {
    Context& context = backward.context();
    const Tensor x = logits.get();
    Tensor dx = context.activation(x.dtype(), x.shape());
    context.kernels.run(
        RouterZLossBackward{.dlogits = dx, .logits = x, .scale = scale.get(), .factor = factor},
        context.stream);
    backward.give(id, std::move(dx));
  });
}

}  // namespace piton
