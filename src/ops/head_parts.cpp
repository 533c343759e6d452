#include "ops/head_parts.h"

namespace piton {
namespace {

// The gradient of keys or values; zeros if there is none.
Tensor gradient_or_zeros(Context& context, Tensor gradient, DType dtype, const Shape& shape) {
  if (gradient.defined()) return gradient.reshape(shape);
  Tensor zeros = context.workspace(dtype, shape);
  context.device.zero(zeros, context.stream);
  return zeros;
}

}  // namespace

std::pair<Value, Value> keys_and_values(Context& context, const Value& rows, const Value& shared,
                                        const HeadWidths& widths) {
  const DType dtype = rows.tensor.dtype();
  const std::int64_t both = widths.own + widths.value;
  const Tensor heads = rows.tensor.split_dim(1, both);
  const std::int64_t n = heads.dim(0);
  const Shape shape{n, heads.dim(1), widths.padded};
  const Tensor k = context.activation(dtype, shape);
  const Tensor v = context.activation(dtype, shape);
  context.kernels.run(
      JoinHeads{.y = k, .own = heads.slice(2, 0, widths.own), .shared = shared.tensor.select(1, 0)},
      context.stream);
  context.kernels.run(JoinHeads{.y = v, .own = heads.slice(2, widths.own, widths.value)},
                      context.stream);
  if (context.tape == nullptr) return {{k}, {v}};
  const Value keys = context.tape->output(k);
  const Value values = context.tape->output(v);
  context.tape->record([rows_id = rows.id, shared_id = shared.id, k_id = keys.id, v_id = values.id,
                        widths, both, dtype, shape](Backward& backward) {
    Context& context = backward.context();
    Tensor dk = backward.take(k_id);
    Tensor dv = backward.take(v_id);
    if (!dk.defined() && !dv.defined()) return;
    dk = gradient_or_zeros(context, std::move(dk), dtype, shape);
    dv = gradient_or_zeros(context, std::move(dv), dtype, shape);
    Tensor drows = backward.place(rows_id, dtype, {shape[0], shape[1] * both});
    const Tensor heads = drows.split_dim(1, both);
    Tensor dshared = backward.place(shared_id, dtype, {shape[0], 1, shape[2] - widths.own});
    context.kernels.run(
        SplitHeads{.own = heads.slice(2, 0, widths.own), .shared = dshared.select(1, 0), .y = dk},
        context.stream);
    context.kernels.run(
        SplitHeads{.own = heads.slice(2, widths.own, widths.value), .shared = {}, .y = dv},
        context.stream);
    backward.give(rows_id, std::move(drows));
    backward.give(shared_id, std::move(dshared));
  });
  return {keys, values};
}

Value trimmed_heads(Context& context, const Value& x, const HeadWidths& widths) {
  if (widths.value == widths.padded) return x;
  const DType dtype = x.tensor.dtype();
  const Tensor heads = x.tensor.split_dim(1, widths.padded);
  const std::int64_t n = heads.dim(0);
  const std::int64_t a = heads.dim(1);
  const Tensor y = context.activation(dtype, {n, a * widths.value});
  context.kernels.run(SplitHeads{.own = y.split_dim(1, widths.value), .shared = {}, .y = heads},
                      context.stream);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([x_id = x.id, id = result.id, widths, dtype, n, a](Backward& backward) {
    const Tensor dy = backward.take(id);
    if (!dy.defined() || x_id < 0) return;
    Context& context = backward.context();
    Tensor dx = backward.place(x_id, dtype, {n, a * widths.padded});
    context.kernels.run(
        JoinHeads{.y = dx.split_dim(1, widths.padded),
                  .own = dy.reshape({n, a * widths.value}).split_dim(1, widths.value)},
        context.stream);
    backward.give(x_id, std::move(dx));
  });
  return result;
}

}  // namespace piton
