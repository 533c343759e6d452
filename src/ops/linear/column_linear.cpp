#include <utility>
#include <vector>

#include "ops/activation.h"
#include "ops/linear/linear_steps.h"

namespace piton {
namespace {

// The product with gathered x: whole.x [n/t, h] on each rank, y [n, f/t]. `slices`: of cut_of().
// `started`: slices of x that travel already; empty: the product is fused. Returns the gathered x
// [n, h] with `wants_x`.
Tensor gathered_forward(Context& context, LinearForward whole, const SplitWeight& split,
                        std::optional<GatheredSlices>& started, bool wants_x) {
  const Tensor x = whole.x;
  Communicator& group = split.group;
  const auto multiply = [&](const RowRange& rows, const Tensor& part) {
    LinearForward call = whole;
    call.x = {};
    call = rows_of(call, rows.begin, 0, rows.size);
    call.x = part;
    context.kernels.run(call, context.stream);
  };
  Tensor all;
  if (wants_x && !(started && started->whole())) {
    all = context.activation(x.dtype(), {x.dim(0) * group.size(), x.dim(1)});
  }
  if (!started) {
    split.shared->gather(context, x, all, multiply);
    return all;
  }
  GatheredSlices& gathered = *started;
  if (gathered.whole()) {
    context.await(gathered.ready[0]);
    whole.x = gathered.parts[0];
    context.kernels.run(whole, context.stream);
    return wants_x ? gathered.parts[0] : Tensor();
  }
  for_rows_of_slices(
      context, gathered, x, group.rank(), [&](const RowRange& rows, const Tensor& part) {
        if (all.defined()) {
          context.kernels.run(Copy{.dst = all.slice(0, rows.begin, rows.size), .src = part},
                              context.stream);
        }
        multiply(rows, part);
      });
  return all;
}

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
  Kept x;        // of this rank
  Kept whole_x;  // of all ranks, if it is kept
  std::int64_t y_id = -1;
  SplitWeight split;
  Parameter* bias = nullptr;
  bool gathers = false;
  PassAdapters adapters;

  void run(Backward& backward) const;
  // Computes dx, and starts its sum over the group.
  void give_dx(Backward& backward, const Tensor& dy, const std::vector<Tensor>& dinputs) const;
  // dx and its reduce-scatter, fused.
  Tensor scattered_dx(Context& context, const Tensor& dy, const std::vector<Tensor>& dinputs) const;
};

Tensor ColumnNode::scattered_dx(Context& context, const Tensor& dy,
                                const std::vector<Tensor>& dinputs) const {
  Tensor mine = context.activation(x_dtype, x_shape);
  const WeightUse use = weight_backward(context, split);
  split.shared->reduce_scatter(
      context,
      [&](const RowRange& rows, const Tensor& tile) {
        context.kernels.run(LinearBackwardInput{.dx = tile,
                                                .dy = dy.slice(0, rows.begin, rows.size),
                                                .weight = use.view(),
                                                .float8 = split.float8},
                            context.stream);
        std::vector<Tensor> parts;
        for (const Tensor& dinput : dinputs) {
          parts.push_back(dinput.slice(0, rows.begin, rows.size));
        }
        add_adapter_dx(context, adapters.list, parts, tile, rows.begin);
      },
      mine);
  return mine;
}

void ColumnNode::give_dx(Backward& backward, const Tensor& dy,
                         const std::vector<Tensor>& dinputs) const {
  if (x_id < 0) return;
  Context& context = backward.context();
  Communicator& group = split.group;
  const std::int64_t width = split.weight.shape[1];
  if (gathers && split.strategy.fused_column_backward && split.shared != nullptr &&
      split.shared->fits(bytes_of_rows(x_dtype, dy.dim(0), width))) {
    backward.give(x_id, scattered_dx(context, dy, dinputs));
    return;
  }
  Tensor dx = context.activation(x_dtype, {dy.dim(0), width});
  {
    const WeightUse use = weight_backward(context, split);
    context.kernels.run(
        LinearBackwardInput{.dx = dx, .dy = dy, .weight = use.view(), .float8 = split.float8},
        context.stream);
  }
  const std::int64_t first_row =
      gathers || adapters.list.empty() ? 0 : adapters.list[0].dropout.rows.first_row;
  add_adapter_dx(context, adapters.list, dinputs, dx, first_row);
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
  Parameter& weight = split.weight;
  Communicator& group = split.group;
  Tensor dy = backward.take(y_id);
  if (!dy.defined()) return;
  const bool gathers_again = gathers && !whole_x.defined();
  // If weight jobs run at once, x is gathered while dx is computed.
  Event x_ready;
  Tensor gathered_x;
  if (weight.trainable && gathers_again && backward.runs_jobs_at_once()) {
    gathered_x = gather(context, x.get(), group, x_ready);
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
  backward.defer([gathered_x, x_ready, x = backward.for_job(whole_x.defined() ? whole_x : x),
                  gathers_again, dy, split = split, bias = bias](Context& context) {
    Event ready = x_ready;
    Tensor input = gathered_x.defined() ? gathered_x : x.get();
    if (gathers_again && !gathered_x.defined()) input = gather(context, input, split.group, ready);
    context.await(ready);
    weight_gradient(context, split, bias, dy, input);
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
  // x travels while the adapters multiply this rank's rows of it.
  std::optional<GatheredSlices> travelling;
  if (gathers) {
    const ProductShape shape{rows, weight.shape[1], weight.shape[0]};
    const int slices = cut_of(split, shape, bytes_of_rows(x.tensor.dtype(), rows, weight.shape[1]));
    if (slices != kFused) travelling.emplace(context, x.tensor, group, slices);
  }
  if (!adapters.list.empty()) {
    adapters.inputs = adapter_inputs(context, adapters.list, x.tensor);
    if (gathers) gather_all(context, adapters.inputs, group);
    write_adapter_outputs(context, adapters.list, adapters.inputs, y, {});
  }
  Tensor gathered_x;  // to keep
  {
    const WeightUse use = weight_forward(context, split, rows);
    WeightUse bias_use;
    if (bias != nullptr)
      bias_use = context.weights.acquire(*bias, WeightForm::kRows, context.stream);
    LinearForward call{.y = y,
                       .x = x.tensor,
                       .weight = use.view(),
                       .bias = bias_use.rows(),
                       .residual = adapters.list.empty() ? Tensor() : y,
                       .activation = activation,
                       .float8 = split.float8};
    if (activation && context.tape != nullptr) call.preactivation = before;
    if (gathers) {
      const bool keeps =
          split.strategy.keeps_gathered && context.tape != nullptr && weight.trainable;
      gathered_x = gathered_forward(context, std::move(call), split, travelling, keeps);
    } else {
      context.kernels.run(call, context.stream);  // without a collective there are no slices
    }
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(before);
  adapters.keep(*context.tape);
  ColumnNode node{.x_id = x.id,
                  .x_dtype = x.tensor.dtype(),
                  .x_shape = x.tensor.shape(),
                  .y_id = result.id,
                  .split = split,
                  .bias = bias,
                  .gathers = gathers,
                  .adapters = adapters};
  if (gathered_x.defined()) node.whole_x = context.tape->keep(gathered_x);
  if (!gathered_x.defined() || !adapters.list.empty()) {
    node.x = keep_for_gradients(context, x.tensor, weight, adapters.list);
  }
  context.tape->record([node = std::move(node)](Backward& backward) { node.run(backward); });
  return activation ? activated(context, result, y, *activation) : result;
}

bool gates_in_product(const Context& context, const Value& x, const SplitWeight& split) {
  const bool gathers = split.strategy.sequence_parallel && split.group.size() > 1;
  return context.tape == nullptr && !gathers && split.adapters.empty() && !split.float8.given() &&
         context.kernels.gates_in_product(x.tensor.dim(0), x.tensor.dtype());
}

Value gated_column_linear(Context& context, const Value& x, const SplitWeight& split,
                          const GatedColumns& end) {
  PITON_ASSERT(gates_in_product(context, x, split), "a gated product of {}", to_string(x.tensor));
  const std::int64_t rows = x.tensor.dim(0);
  const Tensor y = context.activation(x.tensor.dtype(), {rows, split.weight.shape[0] / 2});
  const WeightUse use = weight_forward(context, split, rows);
  WeightUse bias_use;
  if (end.bias != nullptr)
    bias_use = context.weights.acquire(*end.bias, WeightForm::kRows, context.stream);
  context.kernels.run(GatedLinear{.y = y,
                                  .x = x.tensor,
                                  .weight = use.view(),
                                  .bias = bias_use.rows(),
                                  .kind = end.kind,
                                  .gate = end.rule},
                      context.stream);
  return {y};
}

}  // namespace piton
