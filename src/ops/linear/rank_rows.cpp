#include "ops/linear/rank_rows.h"

#include <utility>

#include "ops/linear/linear_steps.h"

namespace piton {
namespace {

// A tensor that a collective writes, complete at `ready`.
struct Travelling {
  Tensor tensor;
  Event ready;
};

// The sum over the members of x [n, h]: [n, h], or with `splits` this one's [n/t, h]. x is
// overwritten.
Travelling summed(const Context& context, const Tensor& x, Communicator& group, bool splits) {
  Tensor sum = x;
  Event ready;
  if (splits) {
    sum = context.activation(x.dtype(), {x.dim(0) / group.size(), x.dim(1)});
    ready = group.reduce_scatter(sum, x, context.stream);
    context.arena.hold(x, ready.fence());
  } else {
    ready = group.all_reduce(sum, Reduction::kSum, context.stream);
  }
  context.arena.hold(sum, ready.fence());
  return {std::move(sum), std::move(ready)};
}

}  // namespace

Value rows_of_ranks(Context& context, const Value& x, Communicator& group, bool splits) {
  if (group.size() == 1) return x;
  Tensor y = x.tensor;
  if (splits) {
    Event ready;
    y = gather(context, x.tensor, group, ready);
    context.await(ready);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  if (x.id < 0) return result;
  context.tape->record([x_id = x.id, id = result.id, &group, splits](Backward& backward) {
    const Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    Context& context = backward.context();
    // dy may be in use elsewhere, and the sum overwrites its operand.
    const Tensor own = context.activation(dy.dtype(), dy.shape());
    context.kernels.run(Copy{.dst = own, .src = dy}, context.stream);
    Travelling sum = summed(context, own, group, splits);
    backward.give(x_id, std::move(sum.tensor), std::move(sum.ready));
  });
  return result;
}

Value sum_over_ranks(Context& context, const Value& x, Communicator& group, bool splits) {
  if (group.size() == 1) return x;
  if (context.tape != nullptr) context.tape->overwrite(x.tensor);
  const Travelling sum = summed(context, x.tensor, group, splits);
  context.await(sum.ready);
  if (context.tape == nullptr) return {sum.tensor};
  Value result = context.tape->output(sum.tensor);
  context.tape->record([x_id = x.id, id = result.id, &group, splits](Backward& backward) {
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    if (!splits) return backward.give(x_id, std::move(dy));
    Event ready;
    Tensor all = gather(backward.context(), dy, group, ready);
    backward.give(x_id, std::move(all), std::move(ready));
  });
  return result;
}

}  // namespace piton
