#include "ops/scale.h"

namespace piton {

Value scaled(Context& context, const Value& x, double factor) {
  const auto multiple = [factor](Context& at, const Tensor& of) {
    const Tensor y = at.activation(of.dtype(), of.shape());
    at.kernels.run(Scale{.y = y, .x = of, .factor = factor}, at.stream);
    return y;
  };
  const Tensor y = multiple(context, x.tensor);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([x_id = x.id, id = result.id, multiple](Backward& backward) {
    const Tensor dy = backward.take(id);
    if (dy.defined() && x_id >= 0) backward.give(x_id, multiple(backward.context(), dy));
  });
  return result;
}

}  // namespace piton
