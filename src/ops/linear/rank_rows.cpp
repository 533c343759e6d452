#include "ops/linear/rank_rows.h"

#include <utility>

#include "ops/linear/linear_steps.h"

namespace piton {
namespace {

// The sum over the members of x [n, h]: [n, h], or with `splits` this one's [n/t, h]. x is
// overwritten.
Traveling summed(const Context& context, const Tensor& x, Communicator& group, bool splits) {
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

UnderWay start_rows_of_ranks(Context& context, const Value& x, Communicator& group, bool splits) {
  if (group.size() == 1) return UnderWay([x](Context&) { return x; });
  Traveling all{.tensor = x.tensor, .ready = {}};
  if (splits) all.tensor = gather(context, x.tensor, group, all.ready);
  const auto back = give_when_back(context, x.id);
  return UnderWay([all, back, &group, splits, wants = x.id >= 0](Context& context) -> Value {
    context.await(all.ready);
    if (context.tape == nullptr) return {all.tensor};
    Value result = context.tape->output(all.tensor);
    if (!wants) return result;
    context.tape->record([id = result.id, back, &group, splits](Backward& backward) {
      const Tensor dy = backward.take(id);
      if (!dy.defined()) return;
      Context& context = backward.context();
      // dy may be in use elsewhere, and the sum overwrites its operand.
      const Tensor own = context.activation(dy.dtype(), dy.shape());
      context.kernels.run(Copy{.dst = own, .src = dy}, context.stream);
      *back = summed(context, own, group, splits);
    });
    return result;
  });
}

Value rows_of_ranks(Context& context, const Value& x, Communicator& group, bool splits) {
  return start_rows_of_ranks(context, x, group, splits).finish(context);
}

UnderWay start_sum_over_ranks(Context& context, const Value& x, Communicator& group, bool splits) {
  if (group.size() == 1) return UnderWay([x](Context&) { return x; });
  if (context.tape != nullptr) context.tape->overwrite(x.tensor);
  const Traveling sum = summed(context, x.tensor, group, splits);
  const auto back = give_when_back(context, x.id);
  return UnderWay([sum, back, &group, splits](Context& context) -> Value {
    context.await(sum.ready);
    if (context.tape == nullptr) return {sum.tensor};
    Value result = context.tape->output(sum.tensor);
    context.tape->record([id = result.id, back, &group, splits](Backward& backward) {
      Tensor dy = backward.take(id);
      if (!dy.defined()) return;
      back->tensor = splits ? gather(backward.context(), dy, group, back->ready) : std::move(dy);
    });
    return result;
  });
}

Value sum_over_ranks(Context& context, const Value& x, Communicator& group, bool splits) {
  return start_sum_over_ranks(context, x, group, splits).finish(context);
}

}  // namespace piton
