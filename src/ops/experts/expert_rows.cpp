#include "ops/experts/expert_rows.h"

#include <algorithm>
#include <utility>

#include "ops/computed_again.h"

namespace piton {
namespace {

// x [n, h], sources int32 [r] -> [r, h]; 0 for a source that is no row.
Tensor copied_rows(const Context& context, const Tensor& x, const Tensor& sources) {
  Tensor y = context.activation(x.dtype(), {sources.dim(0), x.dim(1)});
  context.kernels.run(EmbeddingForward{.y = y, .table = x, .ids = sources}, context.stream);
  return y;
}

}  // namespace

ExpertRows sorted_rows(Context& context, const Tensor& choices, const ExpertRange& experts,
                       std::int64_t most) {
  const auto integers = [&](const Shape& shape) { return context.activation(DType::kI32, shape); };
  const std::int64_t room =
      std::min(choices.dim(0) * std::min(choices.dim(1), experts.count), most * experts.count);
  const ExpertRows rows{.sources = integers({room}),
                        .places = integers(choices.shape()),
                        .first_rows = integers({experts.count + 1})};
  context.kernels.run(SortByExpert{.rows = rows, .choices = choices, .first = experts.first},
                      context.stream);
  return rows;
}

Value dispatched(Context& context, const Value& x, const ExpertRows& rows) {
  const Tensor y = copied_rows(context, x.tensor, rows.sources);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->provide(
      y, computed_again([plain = context.with_tape(nullptr), kept = context.tape->keep(x.tensor),
                         sources = context.tape->keep(rows.sources)] {
        return copied_rows(plain, kept.get(), sources.get());
      }));
  if (x.id < 0) return result;
  context.tape->record([x_id = x.id, id = result.id, dtype = x.tensor.dtype(),
                        shape = x.tensor.shape(),
                        places = context.tape->keep(rows.places)](Backward& backward) {
    const Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    Context& context = backward.context();
    Tensor dx = context.activation(dtype, shape);
    context.kernels.run(CombineExperts{.y = dx, .rows = dy, .places = places.get()},
                        context.stream);
    backward.give(x_id, std::move(dx));
  });
  return result;
}

Value weighted(Context& context, const Value& x, const Value& weights) {
  const std::int64_t n = x.tensor.dim(0);
  const Tensor choices = context.workspace(DType::kI32, {n, 1});
  context.device.zero(choices, context.stream);
  // One expert that all tokens choose has them in their order.
  return combined(context, x, weights, sorted_rows(context, choices, {0, 1}, n).places);
}

Value summed(Context& context, const Value& rows, const ExpertRows& sorted) {
  const Tensor y =
      context.activation(rows.tensor.dtype(), {sorted.places.dim(0), rows.tensor.dim(1)});
  context.kernels.run(CombineExperts{.y = y, .rows = rows.tensor, .places = sorted.places},
                      context.stream);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([rows_id = rows.id, id = result.id,
                        sources = context.tape->keep(sorted.sources)](Backward& backward) {
    const Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    backward.give(rows_id, copied_rows(backward.context(), dy, sources.get()));
  });
  return result;
}

Value combined(Context& context, const Value& rows, const Value& weights, const Tensor& places) {
  const Tensor y = context.activation(rows.tensor.dtype(), {places.dim(0), rows.tensor.dim(1)});
  context.kernels.run(
      CombineExperts{.y = y, .rows = rows.tensor, .places = places, .weights = weights.tensor},
      context.stream);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([rows_id = rows.id, weights_id = weights.id, id = result.id,
                        kept_rows = context.tape->keep(rows.tensor),
                        kept_weights = context.tape->keep(weights.tensor),
                        kept_places = context.tape->keep(places)](Backward& backward) {
    const Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    Context& context = backward.context();
    const Tensor rows = kept_rows.get();
    const Tensor weights = kept_weights.get();
    Tensor drows = context.activation(rows.dtype(), rows.shape());
    Tensor dweights = context.activation(weights.dtype(), weights.shape());
    context.kernels.run(CombineExpertsBackward{.drows = drows,
                                               .dweights = dweights,
                                               .dy = dy,
                                               .rows = rows,
                                               .places = kept_places.get(),
                                               .weights = weights},
                        context.stream);
    backward.give(rows_id, std::move(drows));
    backward.give(weights_id, std::move(dweights));
  });
  return result;
}

}  // namespace piton
