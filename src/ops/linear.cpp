#include "ops/linear.h"

#include <utility>
#include <vector>

#include "ops/row_ranges.h"

namespace piton {
namespace {

void multiply(Context& context, const Tensor& y, const Tensor& x, const WeightUse& weight,
              const Tensor& bias) {
  context.kernels.run(LinearForward{.y = y, .x = x, .weight = weight.view(), .bias = bias}, context.stream);
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
  Tensor dweight = context.weights.gradient(weight, context.stream);
  Tensor dbias = bias != nullptr ? context.weights.gradient(*bias, context.stream) : Tensor();
  PITON_ASSERT(dweight.defined() || !dbias.defined(), "{}: a frozen weight with a trained bias", weight.name);
  if (!dweight.defined()) return;
  context.kernels.run(LinearBackwardWeight{.dweight = dweight, .dbias = dbias, .dy = dy, .x = x},
                      context.stream);
  context.weights.contribute(weight, context.stream);
  if (dbias.defined()) context.weights.contribute(*bias, context.stream);
}

// The gathered form of this rank's rows: each slice of every rank is gathered while the one before
// is multiplied. Slice i of rank r holds rows r * n + begin_i of the whole.
void gathered_forward(Context& context, const Tensor& y, const Tensor& x, const WeightUse& weight,
                      const Tensor& bias, Communicator& group, int slices) {
  const std::int64_t rows = x.dim(0);
  const auto ranges = cut_rows(rows, slices, context.kernels.row_tile());
  std::vector<Tensor> parts(ranges.size());
  std::vector<Event> ready(ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    parts[i] = gather(context, x.slice(0, ranges[i].begin, ranges[i].size), group, ready[i]);
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    context.await(ready[i]);
    if (ranges.size() == 1) {
      multiply(context, y, parts[i], weight, bias);
      continue;
    }
    for (int r = 0; r < group.size(); ++r) {
      multiply(context, y.slice(0, r * rows + ranges[i].begin, ranges[i].size),
               parts[i].slice(0, r * ranges[i].size, ranges[i].size), weight, bias);
    }
    parts[i] = {};
  }
}

}  // namespace

Value column_linear(Context& context, const Value& x, Parameter& weight, Parameter* bias,
                    Communicator& group, const LinearStrategy& strategy, DType output) {
  const bool gathers = strategy.sequence_parallel && group.size() > 1;
  const std::int64_t rows = x.tensor.dim(0) * (gathers ? group.size() : 1);
  Tensor y = context.activation(output, {rows, weight.shape[0]});
  {
    const WeightUse use = context.weights.acquire(weight, WeightForm::kForward, context.stream);
    WeightUse bias_use;
    if (bias != nullptr) bias_use = context.weights.acquire(*bias, WeightForm::kRows, context.stream);
    if (gathers) {
      gathered_forward(context, y, x.tensor, use, bias_use.rows(), group, strategy.slices);
    } else {
      for (const RowRange& range : cut_rows(rows, strategy.slices, context.kernels.row_tile())) {
        multiply(context, y.slice(0, range.begin, range.size), x.tensor.slice(0, range.begin, range.size),
                 use, bias_use.rows());
      }
    }
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([x, id = result.id, &weight, bias, &group, gathers](Backward& backward) {
    Context& context = backward.context();
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    // With weight jobs at once, x travels while dx is computed.
    Event x_ready;
    Tensor whole_x = x.tensor;
    const bool travels = gathers && backward.runs_jobs_at_once();
    if (travels) whole_x = gather(context, x.tensor, group, x_ready);
    if (x.wants_gradient()) {
      Tensor dx = context.activation(x.tensor.dtype(), {dy.dim(0), weight.shape[1]});
      {
        const WeightUse use = context.weights.acquire(weight, WeightForm::kBackward, context.stream);
        context.kernels.run(LinearBackwardInput{.dx = dx, .dy = dy, .weight = use.view()}, context.stream);
      }
      Event reduced;
      if (gathers) {
        Tensor mine = context.activation(dx.dtype(), x.tensor.shape());
        reduced = group.reduce_scatter(mine, dx, context.stream);
        context.arena.hold(mine, reduced.fence());
        context.arena.hold(dx, reduced.fence());
        dx = mine;
      } else if (group.size() > 1) {
        reduced = group.all_reduce(dx, Reduction::kSum, context.stream);
        context.arena.hold(dx, reduced.fence());
      }
      backward.give(x.id, std::move(dx), std::move(reduced));
    }
    backward.defer([whole_x, x_ready, travels, gathers, dy, &weight, bias, &group](Context& context) {
      Event ready = x_ready;
      Tensor input = whole_x;
      if (gathers && !travels) input = gather(context, whole_x, group, ready);
      context.await(ready);
      weight_gradient(context, weight, bias, dy, input);
    });
  });
  return result;
}

Value row_linear(Context& context, const Value& x, Parameter& weight, Communicator& group,
                 const LinearStrategy& strategy) {
  const bool scatters = strategy.sequence_parallel && group.size() > 1;
  const std::int64_t ranks = group.size();
  const std::int64_t rows = x.tensor.dim(0) / (scatters ? ranks : 1);
  const std::int64_t width = weight.shape[0];
  Tensor y = context.activation(x.tensor.dtype(), {rows, width});
  {
    const WeightUse use = context.weights.acquire(weight, WeightForm::kForward, context.stream);
    std::vector<Event> reduced;
    for (const RowRange& range : cut_rows(rows, strategy.slices, context.kernels.row_tile())) {
      if (scatters) {
        // Slice i holds every rank's i-th part, so that what is reduced is contiguous.
        Tensor partial = context.activation(y.dtype(), {ranks * range.size, width});
        for (std::int64_t r = 0; r < ranks; ++r) {
          multiply(context, partial.slice(0, r * range.size, range.size),
                   x.tensor.slice(0, r * rows + range.begin, range.size), use, {});
        }
        Tensor mine = y.slice(0, range.begin, range.size);
        reduced.push_back(group.reduce_scatter(mine, partial, context.stream));
        context.arena.hold(partial, reduced.back().fence());
        context.arena.hold(mine, reduced.back().fence());
        continue;
      }
      Tensor part = y.slice(0, range.begin, range.size);
      multiply(context, part, x.tensor.slice(0, range.begin, range.size), use, {});
      if (ranks > 1) {
        reduced.push_back(group.all_reduce(part, Reduction::kSum, context.stream));
        context.arena.hold(part, reduced.back().fence());
      }
    }
    for (const Event& event : reduced) context.await(event);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([x, id = result.id, &weight, &group, scatters](Backward& backward) {
    Context& context = backward.context();
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    if (scatters) {
      Event ready;
      dy = gather(context, dy, group, ready);
      context.await(ready);
    }
    if (x.wants_gradient()) {
      Tensor dx = context.activation(x.tensor.dtype(), x.tensor.shape());
      const WeightUse use = context.weights.acquire(weight, WeightForm::kBackward, context.stream);
      context.kernels.run(LinearBackwardInput{.dx = dx, .dy = dy, .weight = use.view()}, context.stream);
      backward.give(x.id, std::move(dx));
    }
    backward.defer([input = x.tensor, dy, &weight](Context& context) {
      weight_gradient(context, weight, nullptr, dy, input);
    });
  });
  return result;
}

}  // namespace piton
