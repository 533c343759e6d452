#include "ops/linear.h"

#include <utility>
#include <vector>

#include "ops/activation.h"
#include "ops/dropout.h"
#include "ops/row_ranges.h"

namespace piton {
namespace {

// The part of a product that computes `size` rows of y from `size` rows of x.
LinearForward rows_of(const LinearForward& whole, std::int64_t y_begin, std::int64_t x_begin,
                      std::int64_t size) {
  const auto part = [size](const Tensor& tensor, std::int64_t begin) {
    return tensor.defined() ? tensor.slice(0, begin, size) : tensor;
  };
  LinearForward call = whole;
  call.y = part(whole.y, y_begin);
  call.x = part(whole.x, x_begin);
  call.residual = part(whole.residual, y_begin);
  call.preactivation = part(whole.preactivation, y_begin);
  return call;
}

Tensor gather(Context& context, const Tensor& mine, Communicator& group, Event& ready) {
  Tensor all = context.activation(mine.dtype(), {mine.dim(0) * group.size(), mine.dim(1)});
  ready = group.all_gather(all, mine, context.stream);
  context.arena.hold(all, ready.fence());
  context.arena.hold(mine, ready.fence());
  return all;
}

// dW += dy^T x and db += sum of dy, and counts both contributions.
void weight_gradient(Context& context, Parameter& weight, Parameter* bias, const Tensor& dy,
                     const Tensor& x) {
  const auto [dweight, overwrites] = context.weights.gradient_buffer(weight, context.stream);
  Tensor dbias = bias != nullptr ? context.weights.gradient(*bias, context.stream) : Tensor();
  PITON_ASSERT(dweight.defined() || !dbias.defined(), "{}: a frozen weight with a trained bias",
               weight.name);
  if (!dweight.defined()) return;
  context.kernels.run(
      LinearBackwardWeight{
          .dweight = dweight, .dbias = dbias, .dy = dy, .x = x, .overwrites = overwrites},
      context.stream);
  context.weights.contribute(weight, context.stream);
  if (dbias.defined()) context.weights.contribute(*bias, context.stream);
}

// The product with gathered x: x [n/t, h] on each rank, y [n, f/t]. Each slice is gathered while
// the one before it is multiplied. Slice i of rank r is written to the rows of y from r * n/t +
// begin_i on.
void gathered_forward(Context& context, LinearForward whole, const Tensor& x, Communicator& group,
                      int slices) {
  const std::int64_t rows = x.dim(0);
  const auto ranges = cut_rows(rows, slices, context.kernels.row_tile());
  std::vector<Tensor> parts(ranges.size());
  std::vector<Event> ready(ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    parts[i] = gather(context, x.slice(0, ranges[i].begin, ranges[i].size), group, ready[i]);
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    context.await(ready[i]);
    whole.x = std::move(parts[i]);
    if (ranges.size() == 1) {
      context.kernels.run(whole, context.stream);
      continue;
    }
    for (int r = 0; r < group.size(); ++r) {
      context.kernels.run(
          rows_of(whole, r * rows + ranges[i].begin, r * ranges[i].size, ranges[i].size),
          context.stream);
    }
  }
}

}  // namespace

Value column_linear(Context& context, const Value& x, const SplitWeight& split,
                    const ColumnEnd& end) {
  Parameter& weight = split.weight;
  Parameter* const bias = end.bias;
  Communicator& group = split.group;
  const std::optional<ActivationKind> activation = end.activation;
  const bool gathers = split.strategy.sequence_parallel && group.size() > 1;
  const std::int64_t rows = x.tensor.dim(0) * (gathers ? group.size() : 1);
  Tensor y = context.activation(end.output, {rows, weight.shape[0]});
  // The input of the activation is stored only if backward will read it.
  Tensor before = y;
  if (activation && context.tape != nullptr) before = context.activation(end.output, y.shape());
  {
    const WeightUse use =
        acquire_forward(context.weights, weight, rows, context.kernels, context.stream);
    WeightUse bias_use;
    if (bias != nullptr)
      bias_use = context.weights.acquire(*bias, WeightForm::kRows, context.stream);
    LinearForward call{.y = y,
                       .x = x.tensor,
                       .weight = use.view(),
                       .bias = bias_use.rows(),
                       .activation = activation};
    if (activation && context.tape != nullptr) call.preactivation = before;
    if (gathers) {
      gathered_forward(context, std::move(call), x.tensor, group, split.strategy.slices);
    } else {
      context.kernels.run(call, context.stream);  // without a collective there are no slices
    }
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(before);
  context.tape->record([x_id = x.id, x_dtype = x.tensor.dtype(), x_shape = x.tensor.shape(),
                        kept = context.tape->keep(x.tensor), id = result.id, &weight, bias, &group,
                        gathers](Backward& backward) {
    Context& context = backward.context();
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    // If weight jobs run at once, x is gathered while dx is computed.
    Event x_ready;
    Tensor whole_x;
    if (gathers && backward.runs_jobs_at_once()) {
      whole_x = gather(context, kept.get(), group, x_ready);
    }
    if (x_id >= 0) {
      Tensor dx = context.activation(x_dtype, {dy.dim(0), weight.shape[1]});
      {
        const WeightUse use =
            context.weights.acquire(weight, WeightForm::kBackward, context.stream);
        context.kernels.run(LinearBackwardInput{.dx = dx, .dy = dy, .weight = use.view()},
                            context.stream);
      }
      Event reduced;
      if (gathers) {
        Tensor mine = context.activation(dx.dtype(), x_shape);
        reduced = group.reduce_scatter(mine, dx, context.stream);
        context.arena.hold(mine, reduced.fence());
        context.arena.hold(dx, reduced.fence());
        dx = mine;
      } else if (group.size() > 1) {
        reduced = group.all_reduce(dx, Reduction::kSum, context.stream);
        context.arena.hold(dx, reduced.fence());
      }
      backward.give(x_id, std::move(dx), std::move(reduced));
    }
    backward.defer([whole_x, x_ready, kept = backward.for_job(kept), gathers, dy, &weight, bias,
                    &group](Context& context) {
      Event ready = x_ready;
      Tensor input = whole_x.defined() ? whole_x : kept.get();
      if (gathers && !whole_x.defined()) input = gather(context, input, group, ready);
      context.await(ready);
      weight_gradient(context, weight, bias, dy, input);
    });
  });
  return activation ? activated(context, result, y, *activation) : result;
}

namespace {

// y = residual + x W^T + bias for a group of one: x [n, h], y [n, f].
Value whole_row_linear(Context& context, const Value& x, Parameter& weight, Parameter* bias,
                       const Value* residual) {
  Tensor y = context.activation(x.tensor.dtype(), {x.tensor.dim(0), weight.shape[0]});
  {
    const WeightUse use =
        acquire_forward(context.weights, weight, x.tensor.dim(0), context.kernels, context.stream);
    WeightUse bias_use;
    if (bias != nullptr)
      bias_use = context.weights.acquire(*bias, WeightForm::kRows, context.stream);
    context.kernels.run(
        LinearForward{.y = y,
                      .x = x.tensor,
                      .weight = use.view(),
                      .bias = bias_use.rows(),
                      .residual = residual != nullptr ? residual->tensor : Tensor()},
        context.stream);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  const std::int64_t residual_id = residual != nullptr ? residual->id : -1;
  context.tape->record([x_id = x.id, kept = context.tape->keep(x.tensor), residual_id,
                        id = result.id, &weight, bias](Backward& backward) {
    Context& context = backward.context();
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    backward.give(residual_id, dy);
    if (x_id >= 0) {
      Tensor dx = context.activation(dy.dtype(), {dy.dim(0), weight.shape[1]});
      const WeightUse use = context.weights.acquire(weight, WeightForm::kBackward, context.stream);
      context.kernels.run(LinearBackwardInput{.dx = dx, .dy = dy, .weight = use.view()},
                          context.stream);
      backward.give(x_id, std::move(dx));
    }
    backward.defer([kept = backward.for_job(kept), dy, &weight, bias](Context& context) {
      weight_gradient(context, weight, bias, dy, kept.get());
    });
  });
  return result;
}

struct GatheredBackward {
  Tensor dy;  // [n, f]: the rows of all members
  Tensor dx;  // [n, h/t]; empty if it is not wanted
};

// Gathers dy, [n/t, f] on each member, slice by slice, and multiplies each slice while the next one
// is gathered. A gathered slice has the same rows of every member, one member after another. The
// weight job needs all rows in order, so several slices are copied into one tensor.
GatheredBackward gathered_backward(Context& context, const Tensor& mine, const SplitWeight& split,
                                   bool wants_dx) {
  Parameter& weight = split.weight;
  Communicator& group = split.group;
  const std::int64_t rows = mine.dim(0);
  const std::int64_t all_rows = rows * group.size();
  const auto ranges =
      cut_rows(rows, wants_dx ? split.strategy.slices : 1, context.kernels.row_tile());
  std::vector<Tensor> parts(ranges.size());
  std::vector<Event> ready(ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    parts[i] = gather(context, mine.slice(0, ranges[i].begin, ranges[i].size), group, ready[i]);
  }
  GatheredBackward whole;
  whole.dy =
      ranges.size() == 1 ? parts[0] : context.activation(mine.dtype(), {all_rows, mine.dim(1)});
  std::optional<WeightUse> use;
  if (wants_dx) {
    whole.dx = context.activation(mine.dtype(), {all_rows, weight.shape[1]});
    use = context.weights.acquire(weight, WeightForm::kBackward, context.stream);
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    context.await(ready[i]);
    const RowRange& range = ranges[i];
    for (int r = 0; r < group.size() && ranges.size() > 1; ++r) {
      const Tensor part = parts[i].slice(0, r * range.size, range.size);
      const std::int64_t begin = r * rows + range.begin;
      context.kernels.run(Copy{.dst = whole.dy.slice(0, begin, range.size), .src = part},
                          context.stream);
      context.kernels.run(
          LinearBackwardInput{
              .dx = whole.dx.slice(0, begin, range.size), .dy = part, .weight = use->view()},
          context.stream);
    }
    parts[i] = {};
  }
  if (wants_dx && ranges.size() == 1) {
    context.kernels.run(LinearBackwardInput{.dx = whole.dx, .dy = whole.dy, .weight = use->view()},
                        context.stream);
  }
  return whole;
}

// y [n, f], under sequence parallelism [n/t, f] = sum over the group of x W^T, for x [n, h/t].
Value summed_row_linear(Context& context, const Value& x, const SplitWeight& split) {
  Parameter& weight = split.weight;
  Communicator& group = split.group;
  const LinearStrategy& strategy = split.strategy;
  const bool scatters = strategy.sequence_parallel && group.size() > 1;
  const std::int64_t ranks = group.size();
  const std::int64_t rows = x.tensor.dim(0) / (scatters ? ranks : 1);
  const std::int64_t width = weight.shape[0];
  Tensor y = context.activation(x.tensor.dtype(), {rows, width});
  {
    const WeightUse use =
        acquire_forward(context.weights, weight, x.tensor.dim(0), context.kernels, context.stream);
    std::vector<Event> reduced;
    for (const RowRange& range : cut_rows(rows, strategy.slices, context.kernels.row_tile())) {
      if (scatters) {
        // Slice i holds every rank's i-th part, so that the reduced tensor is contiguous.
        Tensor partial = context.activation(y.dtype(), {ranks * range.size, width});
        for (std::int64_t r = 0; r < ranks; ++r) {
          context.kernels.run(
              LinearForward{.y = partial.slice(0, r * range.size, range.size),
                            .x = x.tensor.slice(0, r * rows + range.begin, range.size),
                            .weight = use.view()},
              context.stream);
        }
        Tensor mine = y.slice(0, range.begin, range.size);
        reduced.push_back(group.reduce_scatter(mine, partial, context.stream));
        context.arena.hold(partial, reduced.back().fence());
        context.arena.hold(mine, reduced.back().fence());
        continue;
      }
      Tensor part = y.slice(0, range.begin, range.size);
      context.kernels.run(
          LinearForward{
              .y = part, .x = x.tensor.slice(0, range.begin, range.size), .weight = use.view()},
          context.stream);
      if (ranks > 1) {
        reduced.push_back(group.all_reduce(part, Reduction::kSum, context.stream));
        context.arena.hold(part, reduced.back().fence());
      }
    }
    for (const Event& event : reduced) context.await(event);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([x_id = x.id, kept = context.tape->keep(x.tensor), id = result.id, split,
                        scatters](Backward& backward) {
    Context& context = backward.context();
    Parameter& weight = split.weight;
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    if (scatters) {
      GatheredBackward whole = gathered_backward(context, dy, split, x_id >= 0);
      dy = std::move(whole.dy);
      backward.give(x_id, std::move(whole.dx));
    } else if (x_id >= 0) {
      Tensor dx = context.activation(dy.dtype(), {dy.dim(0), weight.shape[1]});
      const WeightUse use = context.weights.acquire(weight, WeightForm::kBackward, context.stream);
      context.kernels.run(LinearBackwardInput{.dx = dx, .dy = dy, .weight = use.view()},
                          context.stream);
      backward.give(x_id, std::move(dx));
    }
    backward.defer([kept = backward.for_job(kept), dy, &weight](Context& context) {
      weight_gradient(context, weight, nullptr, dy, kept.get());
    });
  });
  return result;
}

}  // namespace

Value row_linear(Context& context, const Value& x, const SplitWeight& split, const BranchEnd& end) {
  const bool masked = context.training && end.dropout.probability > 0;
  if (split.group.size() == 1 && !masked) {
    return whole_row_linear(context, x, split.weight, end.bias, end.residual);
  }
  const Value y = summed_row_linear(context, x, split);
  if (!masked && end.bias == nullptr && end.residual == nullptr) return y;
  return dropout_add(context, y, end.bias, end.residual, end.dropout);
}

}  // namespace piton
