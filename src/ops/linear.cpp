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

// x, if a weight job will read it.
Kept keep_for_gradients(Context& context, const Tensor& x, const Parameter& weight,
                        const std::vector<LinearAdapter>& adapters) {
  if (!weight.trainable && adapters.empty()) return {};
  return context.tape->keep(x);
}

// The adapters of one pass, with what their backward functions read.
struct PassAdapters {
  std::vector<LinearAdapter> list;  // drawn_adapters()
  std::vector<Tensor> inputs;       // adapter_inputs() of all rows; empty after keep()
  std::vector<Kept> kept;           // the same

  void keep(Tape& tape) {
    for (const Tensor& input : inputs) kept.push_back(tape.keep(input));
    inputs.clear();
  }
};

// Replaces each tensor, [n/t, r] on each member, by that of all members, [n, r].
void gather_all(Context& context, std::vector<Tensor>& tensors, Communicator& group) {
  std::vector<Event> ready(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    tensors[i] = gather(context, tensors[i], group, ready[i]);
  for (const Event& event : ready) context.await(event);
}

struct OwnRows {
  std::vector<Tensor> tensors;
  std::vector<Event> ready;
};

// With `scatters`, this member's rows [n/t, r] of the sum over the group of each tensor [n, r];
// else the tensors.
OwnRows own_rows(Context& context, const std::vector<Tensor>& tensors, Communicator& group,
                 bool scatters) {
  if (!scatters) return {tensors, {}};
  OwnRows own;
  for (const Tensor& tensor : tensors) {
    const Tensor mine =
        context.activation(tensor.dtype(), {tensor.dim(0) / group.size(), tensor.dim(1)});
    own.ready.push_back(group.reduce_scatter(mine, tensor, context.stream));
    context.arena.hold(mine, own.ready.back().fence());
    context.arena.hold(tensor, own.ready.back().fence());
    own.tensors.push_back(mine);
  }
  return own;
}

// The backward function of a column linear, and what it needs from forward.
struct ColumnNode {
  std::int64_t x_id = -1;
  DType x_dtype = DType::kF32;
  Shape x_shape;
  Kept x;  // of this rank
  std::int64_t y_id = -1;
  Parameter& weight;
  Parameter* bias = nullptr;
  Communicator& group;
  bool gathers = false;
  PassAdapters adapters;

  void run(Backward& backward) const;
  // Computes dx, and starts its sum over the group.
  void give_dx(Backward& backward, const Tensor& dy, const std::vector<Tensor>& dinputs) const;
};

void ColumnNode::give_dx(Backward& backward, const Tensor& dy,
                         const std::vector<Tensor>& dinputs) const {
  if (x_id < 0) return;
  Context& context = backward.context();
  Tensor dx = context.activation(x_dtype, {dy.dim(0), weight.shape[1]});
  {
    const WeightUse use = context.weights.acquire(weight, WeightForm::kBackward, context.stream);
    context.kernels.run(LinearBackwardInput{.dx = dx, .dy = dy, .weight = use.view()},
                        context.stream);
  }
  add_adapter_dx(context, adapters.list, dinputs, dx, 0);
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

void ColumnNode::run(Backward& backward) const {
  Context& context = backward.context();
  Tensor dy = backward.take(y_id);
  if (!dy.defined()) return;
  // If weight jobs run at once, x is gathered while dx is computed.
  Event x_ready;
  Tensor whole_x;
  if (weight.trainable && gathers && backward.runs_jobs_at_once()) {
    whole_x = gather(context, x.get(), group, x_ready);
  }
  const std::vector<Tensor> dinputs = adapter_input_gradients(context, adapters.list, dy);
  give_dx(backward, dy, dinputs);
  if (!adapters.list.empty()) {
    backward.defer([own = own_rows(context, dinputs, group, gathers), adapters = adapters,
                    x = backward.for_job(x), dy](Context& context) {
      for (const Event& ready : own.ready) context.await(ready);
      add_gradient_of_a(context, adapters.list, own.tensors, x.get());
      add_gradient_of_b(context, adapters.list, adapters.kept, dy);
    });
  }
  if (!weight.trainable) return;
  backward.defer([whole_x, x_ready, x = backward.for_job(x), gathers = gathers, dy,
                  &weight = weight, bias = bias, &group = group](Context& context) {
    Event ready = x_ready;
    Tensor input = whole_x.defined() ? whole_x : x.get();
    if (gathers && !whole_x.defined()) input = gather(context, input, group, ready);
    context.await(ready);
    weight_gradient(context, weight, bias, dy, input);
  });
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
  PassAdapters adapters{.list = drawn_adapters(context, split.adapters)};
  if (!adapters.list.empty()) {
    adapters.inputs = adapter_inputs(context, adapters.list, x.tensor);
    if (gathers) gather_all(context, adapters.inputs, group);
    write_adapter_outputs(context, adapters.list, adapters.inputs, y, {});
  }
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
                       .residual = adapters.list.empty() ? Tensor() : y,
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
  adapters.keep(*context.tape);
  context.tape->record(
      [node = ColumnNode{.x_id = x.id,
                         .x_dtype = x.tensor.dtype(),
                         .x_shape = x.tensor.shape(),
                         .x = keep_for_gradients(context, x.tensor, weight, adapters.list),
                         .y_id = result.id,
                         .weight = weight,
                         .bias = bias,
                         .group = group,
                         .gathers = gathers,
                         .adapters = adapters}](Backward& backward) { node.run(backward); });
  return activation ? activated(context, result, y, *activation) : result;
}

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
  Tensor y = context.activation(x.tensor.dtype(), {x.tensor.dim(0), weight.shape[0]});
  Tensor added = residual != nullptr ? residual->tensor : Tensor();
  if (!adapters.list.empty()) {
    adapters.inputs = adapter_inputs(context, adapters.list, x.tensor);
    write_adapter_outputs(context, adapters.list, adapters.inputs, y, added);
    added = y;
  }
  {
    const WeightUse use =
        acquire_forward(context.weights, weight, x.tensor.dim(0), context.kernels, context.stream);
    WeightUse bias_use;
    if (bias != nullptr)
      bias_use = context.weights.acquire(*bias, WeightForm::kRows, context.stream);
    context.kernels.run(LinearForward{.y = y,
                                      .x = x.tensor,
                                      .weight = use.view(),
                                      .bias = bias_use.rows(),
                                      .residual = added},
                        context.stream);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  const std::int64_t residual_id = residual != nullptr ? residual->id : -1;
  const Kept kept = keep_for_gradients(context, x.tensor, weight, adapters.list);
  adapters.keep(*context.tape);
  context.tape->record([x_id = x.id, kept, residual_id, id = result.id, &weight, bias,
                        adapters = std::move(adapters)](Backward& backward) {
    Context& context = backward.context();
    Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    backward.give(residual_id, dy);
    Tensor dx;
    if (x_id >= 0) {
      dx = context.activation(dy.dtype(), {dy.dim(0), weight.shape[1]});
      const WeightUse use = context.weights.acquire(weight, WeightForm::kBackward, context.stream);
      context.kernels.run(LinearBackwardInput{.dx = dx, .dy = dy, .weight = use.view()},
                          context.stream);
    }
    row_adapters_backward(backward, adapters, kept, dy, dx);
    backward.give(x_id, std::move(dx));
    if (!weight.trainable) return;
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

// y = x W^T + adapters, for `range` of the rows of `all.x` [n, h/t]. y [range.size, f].
void multiply_rows(Context& context, const LinearForward& all, const PassAdapters& adapters,
                   const RowRange& range, const Tensor& y) {
  LinearForward call = all;
  call.x = all.x.slice(0, range.begin, range.size);
  call.y = y;
  if (!adapters.list.empty()) {
    std::vector<Tensor> inputs;
    for (const Tensor& input : adapters.inputs)
      inputs.push_back(input.slice(0, range.begin, range.size));
    write_adapter_outputs(context, adapters.list, inputs, y, {});
    call.residual = y;
  }
  context.kernels.run(call, context.stream);
}

// y [n, f], under sequence parallelism [n/t, f] = sum over the group of x W^T + adapters, for x
// [n, h/t].
Value summed_row_linear(Context& context, const Value& x, const SplitWeight& split) {
  Parameter& weight = split.weight;
  Communicator& group = split.group;
  const LinearStrategy& strategy = split.strategy;
  const bool scatters = strategy.sequence_parallel && group.size() > 1;
  const std::int64_t ranks = group.size();
  const std::int64_t rows = x.tensor.dim(0) / (scatters ? ranks : 1);
  const std::int64_t width = weight.shape[0];
  Tensor y = context.activation(x.tensor.dtype(), {rows, width});
  PassAdapters adapters{.list = drawn_adapters(context, split.adapters)};
  adapters.inputs = adapter_inputs(context, adapters.list, x.tensor);
  {
    const WeightUse use =
        acquire_forward(context.weights, weight, x.tensor.dim(0), context.kernels, context.stream);
    const LinearForward all{.x = x.tensor, .weight = use.view()};
    std::vector<Event> reduced;
    for (const RowRange& range : cut_rows(rows, strategy.slices, context.kernels.row_tile())) {
      if (scatters) {
        // Slice i holds every rank's i-th part, so that the reduced tensor is contiguous.
        Tensor partial = context.activation(y.dtype(), {ranks * range.size, width});
        for (std::int64_t r = 0; r < ranks; ++r) {
          multiply_rows(context, all, adapters, {r * rows + range.begin, range.size},
                        partial.slice(0, r * range.size, range.size));
        }
        Tensor mine = y.slice(0, range.begin, range.size);
        reduced.push_back(group.reduce_scatter(mine, partial, context.stream));
        context.arena.hold(partial, reduced.back().fence());
        context.arena.hold(mine, reduced.back().fence());
        continue;
      }
      Tensor part = y.slice(0, range.begin, range.size);
      multiply_rows(context, all, adapters, range, part);
      if (ranks > 1) {
        reduced.push_back(group.all_reduce(part, Reduction::kSum, context.stream));
        context.arena.hold(part, reduced.back().fence());
      }
    }
    for (const Event& event : reduced) context.await(event);
  }
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
      GatheredBackward whole = gathered_backward(context, dy, split, x_id >= 0);
      dy = std::move(whole.dy);
      dx = std::move(whole.dx);
    } else if (x_id >= 0) {
      dx = context.activation(dy.dtype(), {dy.dim(0), weight.shape[1]});
      const WeightUse use = context.weights.acquire(weight, WeightForm::kBackward, context.stream);
      context.kernels.run(LinearBackwardInput{.dx = dx, .dy = dy, .weight = use.view()},
                          context.stream);
    }
    row_adapters_backward(backward, adapters, kept, dy, dx);
    backward.give(x_id, std::move(dx));
    if (!weight.trainable) return;
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
    return whole_row_linear(context, x, split, end.bias, end.residual);
  }
  const Value y = summed_row_linear(context, x, split);
  if (!masked && end.bias == nullptr && end.residual == nullptr) return y;
  return dropout_add(context, y, end.bias, end.residual, end.dropout);
}

}  // namespace piton
