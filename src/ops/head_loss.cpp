#include "ops/head_loss.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ops/row_ranges.h"

namespace piton {
namespace {

// Cuts rows into slices at multiples of `tile`, none larger than `slice_rows` rounded up to a tile.
std::vector<RowRange> slices_of(std::int64_t rows, std::int64_t slice_rows, std::int64_t tile) {
  PITON_ASSERT(slice_rows > 0, "slices of {} rows", slice_rows);
  const std::int64_t most = (slice_rows + tile - 1) / tile * tile;
  return cut_rows(rows, (rows + most - 1) / most, tile);
}

// All-gathers x: `mine` [n/t, h] on each member -> [n, h] on every member.
Tensor gather_rows(Context& context, const Tensor& mine, Communicator& group) {
  Tensor all = context.workspace(mine.dtype(), {mine.dim(0) * group.size(), mine.dim(1)});
  const Event ready = group.all_gather(all, mine, context.stream);
  context.arena.hold(all, ready.fence());
  context.arena.hold(mine, ready.fence());
  context.await(ready);
  return all;
}

// Gathers the statistics of each rank's columns: [rows, 3] -> [ranks, rows, 3].
Tensor gather_statistics(Context& context, const Tensor& mine, Communicator& group) {
  const std::int64_t rows = mine.dim(0);
  if (group.size() == 1) return mine.reshape({1, rows, 3});
  Tensor all = context.workspace(mine.dtype(), {group.size() * rows, 3});
  const Event ready = group.all_gather(all, mine, context.stream);
  context.arena.hold(all, ready.fence());
  context.arena.hold(mine, ready.fence());
  context.await(ready);
  return all.reshape({group.size(), rows, 3});
}

// Where the gradients of one micro-batch are written. Either may be empty: not wanted.
struct HeadGradients {
  Tensor dx;       // [n, h]
  Tensor dweight;  // [V/t, h], added to
  bool wanted() const { return dx.defined() || dweight.defined(); }
};

// Sums dx [n, h] over the group, because each member has computed it from its own columns only, and
// gives it to value `x`. With `scatters` (sequence parallelism), only this rank's rows [n/t, h].
void give_dx(Backward& backward, std::int64_t x, Tensor dx, Communicator& group, bool scatters) {
  Context& context = backward.context();
  Event reduced;
  if (scatters) {
    Tensor mine = context.activation(dx.dtype(), {dx.dim(0) / group.size(), dx.dim(1)});
    reduced = group.reduce_scatter(mine, dx, context.stream);
    context.arena.hold(mine, reduced.fence());
    context.arena.hold(dx, reduced.fence());
    dx = std::move(mine);
  } else if (group.size() > 1) {
    reduced = group.all_reduce(dx, Reduction::kSum, context.stream);
    context.arena.hold(dx, reduced.fence());
  }
  backward.give(x, std::move(dx), std::move(reduced));
}

}  // namespace

LossOutput head_loss(Context& context, const Value& x, Parameter& table, const LossInputs& inputs,
                     Communicator& group, bool sequence_parallel, std::int64_t slice_rows) {
  const bool gathers = sequence_parallel && group.size() > 1;
  const DType dtype = x.tensor.dtype();
  const DType sums = sum_dtype(dtype);
  const Tensor rows = gathers ? gather_rows(context, x.tensor, group) : x.tensor;
  const std::int64_t n = rows.dim(0);
  const std::vector<RowRange> slices = slices_of(n, slice_rows, context.kernels.row_tile());
  std::int64_t largest = 0;
  for (const RowRange& slice : slices) largest = std::max(largest, slice.size);

  LossOutput output;
  output.per_token = context.activation(sums, {n});
  output.sum.tensor = context.activation(DType::kF64, {1});
  context.device.zero(output.sum.tensor, context.stream);
  HeadGradients gradients;
  if (context.tape != nullptr) {
    if (x.wants_gradient()) gradients.dx = context.activation(dtype, rows.shape());
    gradients.dweight = context.weights.gradient(table, context.stream);
  }
  {
    const Tensor lse = context.workspace(sums, {largest});
    const Tensor statistics = context.workspace(sums, {largest, 3});
    const Tensor logits = context.workspace(sums, {largest, table.shape[0]});
    // dlogits in 16 bits halve the bytes that the two products read.
    Tensor dlogits = logits;
    if (gradients.wanted() && dtype != sums) dlogits = context.workspace(dtype, logits.shape());
    const WeightUse forward = context.weights.acquire(table, WeightForm::kForward, context.stream);
    std::optional<WeightUse> backward;
    if (gradients.dx.defined()) {
      backward = context.weights.acquire(table, WeightForm::kBackward, context.stream);
    }
    for (const RowRange& slice : slices) {
      const auto part = [&slice](const Tensor& all) {
        return all.slice(0, slice.begin, slice.size);
      };
      const auto first = [&slice](const Tensor& buffer) { return buffer.slice(0, 0, slice.size); };
      const Tensor labels = part(inputs.labels);
      const Tensor mask = part(inputs.mask);
      context.kernels.run(
          LinearForward{.y = first(logits), .x = part(rows), .weight = forward.view()},
          context.stream);
      context.kernels.run(LossStatistics{.statistics = first(statistics),
                                         .logits = first(logits),
                                         .labels = labels,
                                         .vocabulary_begin = inputs.vocabulary_begin,
                                         .valid = inputs.valid},
                          context.stream);
      context.kernels.run(
          LossCombine{.loss = part(output.per_token),
                      .lse = first(lse),
                      .sum = output.sum.tensor,
                      .statistics = gather_statistics(context, first(statistics), group),
                      .labels = labels,
                      .mask = mask},
          context.stream);
      if (!gradients.wanted()) continue;
      context.kernels.run(LossBackward{.dlogits = first(dlogits),
                                       .logits = first(logits),
                                       .lse = first(lse),
                                       .labels = labels,
                                       .mask = mask,
                                       .scale = inputs.scale,
                                       .vocabulary_begin = inputs.vocabulary_begin,
                                       .valid = inputs.valid},
                          context.stream);
      if (gradients.dx.defined()) {
        context.kernels.run(
            LinearBackwardInput{
                .dx = part(gradients.dx), .dy = first(dlogits), .weight = backward->view()},
            context.stream);
      }
      if (gradients.dweight.defined()) {
        context.kernels.run(
            LinearBackwardWeight{
                .dweight = gradients.dweight, .dy = first(dlogits), .x = part(rows)},
            context.stream);
      }
    }
  }
  if (context.tape == nullptr) return output;
  if (gradients.dweight.defined()) context.weights.contribute(table, context.stream);
  output.sum = context.tape->output(output.sum.tensor);
  context.tape->record([id = output.sum.id, x_id = x.id, dx = context.tape->keep(gradients.dx),
                        &group, gathers](Backward& backward) {
    if (!backward.take(id).defined() || !dx.defined()) return;
    give_dx(backward, x_id, dx.get(), group, gathers);
  });
  return output;
}

}  // namespace piton
