#include "ops/embedding.h"

#include <utility>

namespace piton {

Value token_embedding(Context& context, const Tensor& ids, const SplitTable& split) {
  Parameter& table = split.table;
  Communicator& group = split.group;
  const std::int64_t vocabulary_begin = split.vocabulary_begin;
  const bool scatters = split.sequence_parallel && group.size() > 1;
  const std::int64_t width = table.shape[1];
  Tensor y = context.activation(table.dtype, {ids.dim(0), width});
  {
    const WeightUse use = context.weights.acquire(table, WeightForm::kRows, context.stream);
    context.kernels.run(
        EmbeddingForward{
            .y = y, .table = use.rows(), .ids = ids, .vocabulary_begin = vocabulary_begin},
        context.stream);
  }
  if (scatters) {
    Tensor mine = context.activation(table.dtype, {ids.dim(0) / group.size(), width});
    const Event reduced = group.reduce_scatter(mine, y, context.stream);
    context.arena.hold(mine, reduced.fence());
    context.arena.hold(y, reduced.fence());
    context.await(reduced);
    y = mine;
  } else if (group.size() > 1) {
    const Event reduced = group.all_reduce(y, Reduction::kSum, context.stream);
    context.arena.hold(y, reduced.fence());
    context.await(reduced);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([kept_ids = context.tape->keep(ids), id = result.id, &table,
                        vocabulary_begin, &group, scatters](Backward& backward) {
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    backward.defer([kept_ids, dy, &table, vocabulary_begin, &group, scatters](Context& context) {
      Tensor dtable = context.weights.gradient(table, context.stream);
      if (!dtable.defined()) return;
      const Tensor ids = kept_ids.get();
      Tensor whole = dy;
      if (scatters) {
        whole = context.activation(dy.dtype(), {ids.dim(0), dy.dim(1)});
        const Event ready = group.all_gather(whole, dy, context.stream);
        context.arena.hold(whole, ready.fence());
        context.arena.hold(dy, ready.fence());
        context.await(ready);
      }
      context.kernels.run(
          EmbeddingBackward{
              .dtable = dtable, .dy = whole, .ids = ids, .vocabulary_begin = vocabulary_begin},
          context.stream);
      context.weights.contribute(table, context.stream);
    });
  });
  return result;
}

Value add_position_embedding(Context& context, const Value& x, const Tensor& ids,
                             Parameter& table) {
  if (context.tape != nullptr) context.tape->overwrite(x.tensor);
  {
    const WeightUse use = context.weights.acquire(table, WeightForm::kRows, context.stream);
    context.kernels.run(
        EmbeddingForward{.y = x.tensor, .table = use.rows(), .ids = ids, .add = true},
        context.stream);
  }
  if (context.tape == nullptr) return x;
  Value result = context.tape->output(x.tensor);
  context.tape->record([kept_ids = context.tape->keep(ids), x_id = x.id, id = result.id,
                        &table](Backward& backward) {
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    backward.give(x_id, dy);
    backward.defer([kept_ids, dy, &table](Context& context) {
      Tensor dtable = context.weights.gradient(table, context.stream);
      if (!dtable.defined()) return;
      context.kernels.run(EmbeddingBackward{.dtable = dtable, .dy = dy, .ids = kept_ids.get()},
                          context.stream);
      context.weights.contribute(table, context.stream);
    });
  });
  return result;
}

}  // namespace piton
