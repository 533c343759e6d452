#include "ops/experts/expert_rows.h"

#include <algorithm>
#include <utility>

#include "ops/computed_again.h"

namespace piton {
namespace {

// x [n, h], sources int32 [r], of which used[0] count -> [r, h].
Tensor copied_rows(const Context& context, const Tensor& x, const Tensor& sources,
                   const Tensor& used) {
  Tensor y = context.activation(x.dtype(), {sources.dim(0), x.dim(1)});
  context.kernels.run(EmbeddingForward{.y = y, .table = x, .ids = sources, .used = used},
                      context.stream);
  return y;
}

CountedRows counted(const CountedRows* used, const Tensor& rows, const Tensor& places) {
  return used != nullptr ? *used : CountedRows{places.dim(0), rows.dim(0)};
}

Tensor first_of(const Tensor& tensor, std::int64_t rows) { return tensor.slice(0, 0, rows); }

}  // namespace

ExpertRows sorted_rows(Context& context, const Tensor& choices, const ExpertRange& experts,
                       std::int64_t most, const CountedRows* used) {
  const auto integers = [&](const Shape& shape) { return context.activation(DType::kI32, shape); };
  const std::int64_t of_token = std::min(choices.dim(1), experts.count);
  const std::int64_t room = std::min(choices.dim(0) * of_token, most * experts.count);
  const ExpertRows rows{.sources = integers({room}),
                        .places = integers(choices.shape()),
                        .first_rows = integers({experts.count + 1})};
  const std::int64_t tokens = used != nullptr ? used->tokens : choices.dim(0);
  context.kernels.run(
      SortByExpert{.rows = {.sources = first_of(rows.sources, std::min(room, tokens * of_token)),
                            .places = first_of(rows.places, tokens),
                            .first_rows = rows.first_rows},
                   .choices = first_of(choices, tokens),
                   .first = experts.first},
      context.stream);
  return rows;
}

Value dispatched(Context& context, const Value& x, const ExpertRows& rows,
                 const CountedRows* used) {
  const Tensor y = copied_rows(context, x.tensor, rows.sources, rows.used());
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->provide(
      y, computed_again([plain = context.with_tape(nullptr), kept = context.tape->keep(x.tensor),
                         sources = context.tape->keep(rows.sources),
                         used = context.tape->keep(rows.used())] {
        return copied_rows(plain, kept.get(), sources.get(), used.get());
      }));
  if (x.id < 0) return result;
  context.tape->record([x_id = x.id, id = result.id, dtype = x.tensor.dtype(),
                        shape = x.tensor.shape(), counts = counted(used, y, rows.places),
                        places = context.tape->keep(rows.places)](Backward& backward) {
    const Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    Context& context = backward.context();
    Tensor dx = context.activation(dtype, shape);
    context.kernels.run(CombineExperts{.y = first_of(dx, counts.tokens),
                                       .rows = first_of(dy, counts.rows),
                                       .places = first_of(places.get(), counts.tokens)},
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

Value summed(Context& context, const Value& rows, const ExpertRows& sorted,
             const CountedRows* used) {
  const Tensor y =
      context.activation(rows.tensor.dtype(), {sorted.places.dim(0), rows.tensor.dim(1)});
  const CountedRows counts = counted(used, rows.tensor, sorted.places);
  context.kernels.run(CombineExperts{.y = first_of(y, counts.tokens),
                                     .rows = first_of(rows.tensor, counts.rows),
                                     .places = first_of(sorted.places, counts.tokens)},
                      context.stream);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([rows_id = rows.id, id = result.id,
                        sources = context.tape->keep(sorted.sources),
                        used = context.tape->keep(sorted.used())](Backward& backward) {
    const Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    backward.give(rows_id, copied_rows(backward.context(), dy, sources.get(), used.get()));
  });
  return result;
}

Value combined(Context& context, const Value& rows, const Value& weights, const Tensor& places,
               const CountedRows* used) {
  const Tensor y = context.activation(rows.tensor.dtype(), {places.dim(0), rows.tensor.dim(1)});
  const CountedRows counts = counted(used, rows.tensor, places);
  context.kernels.run(CombineExperts{.y = first_of(y, counts.tokens),
                                     .rows = first_of(rows.tensor, counts.rows),
                                     .places = first_of(places, counts.tokens),
                                     .weights = first_of(weights.tensor, counts.tokens)},
                      context.stream);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([rows_id = rows.id, weights_id = weights.id, id = result.id, counts,
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
    context.kernels.run(CombineExpertsBackward{.drows = first_of(drows, counts.rows),
                                               .dweights = first_of(dweights, counts.tokens),
                                               .dy = first_of(dy, counts.tokens),
                                               .rows = first_of(rows, counts.rows),
                                               .places = first_of(kept_places.get(), counts.tokens),
                                               .weights = first_of(weights, counts.tokens)},
                        context.stream);
    backward.give(rows_id, std::move(drows));
    backward.give(weights_id, std::move(dweights));
  });
  return result;
}

}  // namespace piton
