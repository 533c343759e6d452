#include <utility>
#include <vector>

#include "ops/dropout.h"
#include "ops/linear/linear_steps.h"

namespace piton {
namespace {

// The backward pass of the adapters of a row linear. dy: of all rows, [n, f]; dx [n, h/t], complete
// but for their part, or empty.
void row_adapters_backward(Backward& backward, const PassAdapters& adapters, const Kept& x,
                           const Tensor& dy, const Tensor& dx) {
  if (adapters.list.empty()) return;
  Context& context = backward.context();
  const std::vector<Tensor> dinputs = adapter_input_gradients(context, adapters.list, dy);
  if (dx.defined()) add_adapter_dx(context, adapters.list, dinputs, dx, 0);
  backward.defer([dinputs, adapters, x = backward.for_job(x), dy](Context& context) {
    add_gradient_of_a(context, adapters.list, dinputs, x.get());
    add_gradient_of_b(context, adapters.list, adapters.kept, dy);
  });
}

// y = residual + x W^T + adapters + bias for a group of one: x [n, h], y [n, f].
Value whole_row_linear(Context& context, const Value& x, const SplitWeight& split, Parameter* bias,
                       const Value* residual) {
  Parameter& weight = split.weight;
  PassAdapters adapters{.list = drawn_adapters(context, split.adapters)};
  const DType dtype = x.tensor.dtype();
  Tensor y = context.activation(residual != nullptr ? residual->tensor.dtype() : dtype,
                                {x.tensor.dim(0), weight.shape[0]});
  Tensor added = residual != nullptr ? residual->tensor : Tensor();
  if (!adapters.list.empty()) {
    adapters.inputs = adapter_inputs(context, adapters.list, x.tensor);
    write_adapter_outputs(context, adapters.list, adapters.inputs, y, added);
    added = y;
  }
  {
    const WeightUse use = weight_forward(context, split, x.tensor.dim(0));
    WeightUse bias_use;
    if (bias != nullptr)
      bias_use = context.weights.acquire(*bias, WeightForm::kRows, context.stream);
    context.kernels.run(LinearForward{.y = y,
                                      .x = x.tensor,
                                      .weight = use.view(),
                                      .bias = bias_use.rows(),
                                      .residual = added,
                                      .float8 = split.float8},
                        context.stream);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  const std::int64_t residual_id = residual != nullptr ? residual->id : -1;
  const Kept kept = keep_for_gradients(context, x.tensor, weight, adapters.list);
  adapters.keep(*context.tape);
  context.tape->record([x_id = x.id, kept, residual_id, id = result.id, split, bias, dtype,
                        adapters = std::move(adapters)](Backward& backward) {
    Context& context = backward.context();
    Parameter& weight = split.weight;
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    backward.give(residual_id, dy);
    if (dy.dtype() != dtype) {  // of a residual stream in fp32: rounded once for all products
      const Tensor rounded = context.activation(dtype, dy.shape());
      context.kernels.run(Copy{.dst = rounded, .src = dy}, context.stream);
      dy = rounded;
    }
    Tensor dx;
    if (x_id >= 0) {
      dx = context.activation(dy.dtype(), {dy.dim(0), weight.shape[1]});
      const WeightUse use = weight_backward(context, split);
      context.kernels.run(
          LinearBackwardInput{.dx = dx, .dy = dy, .weight = use.view(), .float8 = split.float8},
          context.stream);
    }
    row_adapters_backward(backward, adapters, kept, dy, dx);
    backward.give(x_id, std::move(dx));
    if (!weight.trainable) return;
    backward.defer([kept = backward.for_job(kept), dy, split, bias](Context& context) {
      weight_gradient(context, split, bias, dy, kept.get());
    });
  });
  return result;
}

struct GatheredBackward {
  Tensor dy;  // [n, f]: the rows of all members; empty if no weight job reads them
  Tensor dx;  // [n, h/t]; empty if it is not wanted
};

// Gathers dy, [n/t, f] on each member, in slices or tiles, and multiplies each while the next one
// is gathered. The weight job needs all rows in order, so they are copied into one tensor.
GatheredBackward gathered_backward(Context& context, const Tensor& mine, const SplitWeight& split,
                                   bool wants_dx, bool wants_dy) {
  Parameter& weight = split.weight;
  Communicator& group = split.group;
  const std::int64_t all_rows = mine.dim(0) * group.size();
  const int slices = wants_dx ? cut_of(split, {all_rows, weight.shape[0], weight.shape[1]},
                                       mine.bytes() * group.size())
                              : 1;
  GatheredBackward whole;
  std::optional<WeightUse> use;
  const auto prepare = [&] {
    if (!wants_dx) return;
    whole.dx = context.activation(mine.dtype(), {all_rows, weight.shape[1]});
    use = weight_backward(context, split);
  };
  const auto multiply = [&](const RowRange& rows, const Tensor& part) {
    context.kernels.run(LinearBackwardInput{.dx = whole.dx.slice(0, rows.begin, rows.size),
                                            .dy = part,
                                            .weight = use->view(),
                                            .float8 = split.float8},
                        context.stream);
  };
  const auto make_dy = [&] {
    if (wants_dy) whole.dy = context.activation(mine.dtype(), {all_rows, mine.dim(1)});
  };
  if (slices == kFused) {
    make_dy();
    prepare();
    split.shared->gather(context, mine, whole.dy, multiply);
    return whole;
  }
  GatheredSlices gathered(context, mine, group, slices);
  if (gathered.whole()) {
    whole.dy = gathered.parts[0];
    prepare();
    context.await(gathered.ready[0]);
    if (wants_dx) multiply({0, all_rows}, whole.dy);
    return whole;
  }
  make_dy();
  prepare();
  for_rows_of_slices(
      context, gathered, mine, group.rank(), [&](const RowRange& rows, const Tensor& part) {
        if (wants_dy) {
          context.kernels.run(Copy{.dst = whole.dy.slice(0, rows.begin, rows.size), .src = part},
                              context.stream);
        }
        multiply(rows, part);
      });
  return whole;
}

// y = x W^T + adapters, for `range` of the rows of `all.x` [n, h/t]. y [range.size, f].
void multiply_rows(Context& context, const LinearForward& all, const PassAdapters& adapters,
                   const RowRange& range, const Tensor& y) {
  LinearForward call = all;
  call.x = all.x.slice(0, range.begin, range.size);
  call.y = y;
  const AdaptersOfRows part = adapters_of_rows(adapters.list, adapters.inputs, range);
  if (!part.list.empty()) {
    write_adapter_outputs(context, part.list, part.inputs, y, {});
    call.residual = y;
  }
  context.kernels.run(call, context.stream);
}

// Writes y [n, f], with `scatters` [n/t, f], the sum over the group of x W^T + adapters, and waits
// for it. x [n, h/t].
void sum_products(Context& context, const Tensor& x, const SplitWeight& split,
                  const PassAdapters& adapters, const Tensor& y) {
  Communicator& group = split.group;
  const std::int64_t ranks = group.size();
  const std::int64_t rows = y.dim(0);
  const std::int64_t width = y.dim(1);
  const bool scatters = rows < x.dim(0);
  const WeightUse use = weight_forward(context, split, x.dim(0));
  const LinearForward all{.x = x, .weight = use.view(), .float8 = split.float8};
  const auto multiply = [&](const RowRange& range, const Tensor& tile) {
    multiply_rows(context, all, adapters, range, tile);
  };
  const int slices =
      cut_of(split, {x.dim(0), x.dim(1), width}, bytes_of_rows(y.dtype(), x.dim(0), width));
  if (slices == kFused && scatters) return split.shared->reduce_scatter(context, multiply, y);
  if (slices == kFused) return split.shared->all_reduce(context, multiply, y);
  std::vector<Event> reduced;
  for (const RowRange& range : cut_rows(rows, slices, context.kernels.row_tile())) {
    const Tensor mine = y.slice(0, range.begin, range.size);
    if (!scatters) {
      multiply(range, mine);
      if (ranks == 1) continue;
      reduced.push_back(group.all_reduce(mine, Reduction::kSum, context.stream));
      context.arena.hold(mine, reduced.back().fence());
      continue;
    }
    // Slice i holds every rank's i-th part, so that the reduced tensor is contiguous.
    const Tensor partial = context.activation(y.dtype(), {ranks * range.size, width});
    for (std::int64_t r = 0; r < ranks; ++r) {
      multiply({r * rows + range.begin, range.size}, partial.slice(0, r * range.size, range.size));
    }
    reduced.push_back(group.reduce_scatter(mine, partial, context.stream));
    context.arena.hold(partial, reduced.back().fence());
    context.arena.hold(mine, reduced.back().fence());
  }
  for (const Event& event : reduced) context.await(event);
}

// y [n, f], under sequence parallelism [n/t, f] = sum over the group of x W^T + adapters, for x
// [n, h/t].
Value summed_row_linear(Context& context, const Value& x, const SplitWeight& split) {
  const bool scatters = split.strategy.sequence_parallel && split.group.size() > 1;
  const std::int64_t rows = x.tensor.dim(0) / (scatters ? split.group.size() : 1);
  const Tensor y = context.activation(x.tensor.dtype(), {rows, split.weight.shape[0]});
  PassAdapters adapters{.list = drawn_adapters(context, split.adapters)};
  adapters.inputs = adapter_inputs(context, adapters.list, x.tensor);
  sum_products(context, x.tensor, split, adapters, y);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  const Kept kept = keep_for_gradients(context, x.tensor, split.weight, adapters.list);
  adapters.keep(*context.tape);
  context.tape->record([x_id = x.id, kept, id = result.id, split, scatters,
                        adapters = std::move(adapters)](Backward& backward) {
    Context& context = backward.context();
    Parameter& weight = split.weight;
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    Tensor dx;
    if (scatters) {
      GatheredBackward whole = gathered_backward(context, dy, split, x_id >= 0,
                                                 weight.trainable || !adapters.list.empty());
      dy = std::move(whole.dy);
      dx = std::move(whole.dx);
    } else if (x_id >= 0) {
      dx = context.activation(dy.dtype(), {dy.dim(0), weight.shape[1]});
      const WeightUse use = weight_backward(context, split);
      context.kernels.run(
          LinearBackwardInput{.dx = dx, .dy = dy, .weight = use.view(), .float8 = split.float8},
          context.stream);
    }
    row_adapters_backward(backward, adapters, kept, dy, dx);
    backward.give(x_id, std::move(dx));
    if (!weight.trainable) return;
    backward.defer([kept = backward.for_job(kept), dy, split](Context& context) {
      weight_gradient(context, split, nullptr, dy, kept.get());
    });
  });
  return result;
}

}  // namespace

Value row_linear(Context& context, const Value& x, const SplitWeight& split, const BranchEnd& end) {
  const bool masked = context.training && end.dropout.probability > 0;
  if (split.group.size() == 1 && !masked) {
    return whole_row_linear(context, x, split, end.bias, end.residual);
  }
  const Value y = summed_row_linear(context, x, split);
  if (!masked && end.bias == nullptr && end.residual == nullptr) return y;
  return dropout_add(context, y, end.bias, end.residual, end.dropout);
}

}  // namespace piton
