#include "ops/loss.h"

#include <utility>

namespace piton {

LossOutput cross_entropy(Context& context, const Value& logits, const LossInputs& inputs,
                         Communicator& group, DType gradient_dtype) {
  const std::int64_t rows = logits.tensor.dim(0);
  const DType sums = logits.tensor.dtype();
  Tensor statistics = context.workspace(sums, {rows, 3});
  context.kernels.run(LossStatistics{.statistics = statistics, .logits = logits.tensor,
                                     .labels = inputs.labels, .vocabulary_begin = inputs.vocabulary_begin,
                                     .valid = inputs.valid},
                      context.stream);
  if (group.size() > 1) {
    Tensor all = context.workspace(sums, {group.size() * rows, 3});
    const Event ready = group.all_gather(all, statistics, context.stream);
    context.arena.hold(all, ready.fence());
    context.arena.hold(statistics, ready.fence());
    context.await(ready);
    statistics = all;
  }
  Tensor loss = context.activation(sums, {rows});
  Tensor lse = context.activation(sums, {rows});
  Tensor sum = context.activation(DType::kF64, {1});
  context.device.zero(sum, context.stream);
  context.kernels.run(LossCombine{.loss = loss, .lse = lse, .sum = sum,
                                  .statistics = statistics.reshape({group.size(), rows, 3}),
                                  .labels = inputs.labels, .mask = inputs.mask},
                      context.stream);
  if (context.tape == nullptr) return {{sum}, loss};
  Value result = context.tape->output(sum);
  context.tape->record([logits, lse, inputs, gradient_dtype, id = result.id](Backward& backward) {
    Context& context = backward.context();
    if (!backward.take(id).defined()) return;
    Tensor dlogits = gradient_dtype == logits.tensor.dtype()
                         ? logits.tensor
                         : context.activation(gradient_dtype, logits.tensor.shape());
    context.kernels.run(LossBackward{.dlogits = dlogits, .logits = logits.tensor, .lse = lse,
                                     .labels = inputs.labels, .mask = inputs.mask, .scale = inputs.scale,
                                     .vocabulary_begin = inputs.vocabulary_begin, .valid = inputs.valid},
                        context.stream);
    backward.give(logits.id, std::move(dlogits));
  });
  return {result, loss};
}

}  // namespace piton
