#include "ops/split.h"

#include <memory>
#include <utility>

namespace piton {
namespace {

// The gradient of the whole tensor. Allocated when the first part asks for its place.
struct SharedGradient {
  DType dtype = DType::kF32;
  Shape shape;
  Tensor tensor;

  const Tensor& get(const Context& context) {
    if (!tensor.defined()) tensor = context.activation(dtype, shape);
    return tensor;
  }
};

// Makes sure that `place` holds the gradient of a part: copies it if the op wrote it elsewhere, and
// writes zeros if there is none.
void settle(Context& context, const Tensor& place, Tensor gradient) {
  if (!gradient.defined()) {
    gradient = context.workspace(place.dtype(), place.shape());
    context.device.zero(gradient, context.stream);
  } else if (gradient.raw() == place.raw()) {
    return;
  }
  context.kernels.run(Copy{.dst = place.reshape(gradient.shape()), .src = gradient},
                      context.stream);
}

}  // namespace

std::vector<Value> split_columns(Context& context, const Value& x,
                                 const std::vector<std::int64_t>& widths) {
  auto whole = std::make_shared<SharedGradient>();
  whole->dtype = x.tensor.dtype();
  whole->shape = x.tensor.shape();
  std::vector<Value> parts;
  std::vector<std::int64_t> begins;
  std::int64_t begin = 0;
  for (const std::int64_t width : widths) {
    const Tensor columns = x.tensor.slice(1, begin, width);
    if (context.tape == nullptr) {
      parts.push_back({columns});
    } else {
      parts.push_back(context.tape->part(columns, [whole, begin, width](const Context& context) {
        return whole->get(context).slice(1, begin, width);
      }));
    }
    begins.push_back(begin);
    begin += width;
  }
  PITON_ASSERT(begin == x.tensor.dim(1), "{} columns of {}", begin, x.tensor.dim(1));
  if (context.tape == nullptr) return parts;
  std::vector<std::int64_t> ids;
  for (const Value& part : parts) ids.push_back(part.id);
  context.tape->record([whole, ids, begins, widths, x_id = x.id](Backward& backward) {
    Context& context = backward.context();
    std::vector<Tensor> gradients;
    bool any = false;
    for (const std::int64_t id : ids) {
      gradients.push_back(backward.take(id));
      any |= gradients.back().defined();
    }
    if (!any) return;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      settle(context, whole->get(context).slice(1, begins[i], widths[i]), std::move(gradients[i]));
    }
    backward.give(x_id, whole->get(context));
  });
  return parts;
}

Value joined_columns(Context& context, const Value& a, const Value& b) {
  const DType dtype = a.tensor.dtype();
  const std::int64_t n = a.tensor.dim(0);
  const std::int64_t first = a.tensor.dim(1);
  const std::int64_t second = b.tensor.dim(1);
  const Tensor y = context.activation(dtype, {n, first + second});
  context.kernels.run(Copy{.dst = y.slice(1, 0, first), .src = a.tensor}, context.stream);
  context.kernels.run(Copy{.dst = y.slice(1, first, second), .src = b.tensor}, context.stream);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([=, a_id = a.id, b_id = b.id, id = result.id](Backward& backward) {
    Context& context = backward.context();
    const Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    const auto give = [&](std::int64_t part, std::int64_t begin, std::int64_t width) {
      if (part < 0) return;
      Tensor dpart = backward.place(part, dtype, {n, width});
      context.kernels.run(Copy{.dst = dpart, .src = dy.slice(1, begin, width)}, context.stream);
      backward.give(part, std::move(dpart));
    };
    give(a_id, 0, first);
    give(b_id, first, second);
  });
  return result;
}

Value copied_heads(Context& context, const Value& x, std::int64_t copies) {
  const DType dtype = x.tensor.dtype();
  const Shape shape = x.tensor.shape();
  const Tensor y = context.activation(dtype, {shape[0], copies, shape[1]});
  for (std::int64_t i = 0; i < copies; ++i)
    context.kernels.run(Copy{.dst = y.select(1, i), .src = x.tensor}, context.stream);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([=, x_id = x.id, id = result.id](Backward& backward) {
    Context& context = backward.context();
    const Tensor dy = backward.take(id);
    if (!dy.defined() || x_id < 0) return;
    const Tensor all = dy.reshape({shape[0], copies, shape[1]});
    const Tensor sum = context.activation(dtype, shape), one = context.activation(dtype, shape);
    context.kernels.run(Copy{.dst = sum, .src = all.select(1, 0)}, context.stream);
    for (std::int64_t i = 1; i < copies; ++i) {
      context.kernels.run(Copy{.dst = one, .src = all.select(1, i)}, context.stream);
      context.kernels.run(Add{.y = sum, .a = sum, .b = one}, context.stream);
    }
    Tensor dx = backward.place(x_id, dtype, shape);
    context.kernels.run(Copy{.dst = dx, .src = sum}, context.stream);
    backward.give(x_id, std::move(dx));
  });
  return result;
}

Value packed_rows(Context& context, const Value& x) {
  const DType dtype = x.tensor.dtype();
  const Shape shape = x.tensor.shape();
  const std::int64_t d = shape[shape.ndim() - 1];
  const Tensor rows = context.activation(dtype, {d > 0 ? shape.elements() / d : 0, d});
  context.kernels.run(Copy{.dst = rows.reshape(shape), .src = x.tensor}, context.stream);
  if (context.tape == nullptr) return {rows};
  Value result = context.tape->output(rows);
  context.tape->record([dtype, shape, x_id = x.id, id = result.id](Backward& backward) {
    Context& context = backward.context();
    const Tensor dy = backward.take(id);
    if (!dy.defined() || x_id < 0) return;
    Tensor dx = backward.place(x_id, dtype, shape);
    context.kernels.run(Copy{.dst = dx, .src = dy.reshape(shape)}, context.stream);
    backward.give(x_id, std::move(dx));
  });
  return result;
}

Value chosen_rows(Context& context, const Value& x, const Tensor& ids, const DividedRows& rows) {
  const bool gathers = rows.sequence_parallel && rows.group.size() > 1;
  const std::int64_t first = gathers ? rows.group.rank() * x.tensor.dim(0) : 0;
  const Tensor y = context.activation(x.tensor.dtype(), {ids.dim(0), x.tensor.dim(1)});
  // Rows of other ranks are 0 here.
  context.kernels.run(
      EmbeddingForward{.y = y, .table = x.tensor, .ids = ids, .vocabulary_begin = first},
      context.stream);
  if (gathers) {
    const Event ready = rows.group.all_reduce(y, Reduction::kSum, context.stream);
    context.arena.hold(y, ready.fence());
    context.await(ready);
  }
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([x_id = x.id, id = result.id, ids, first, dtype = x.tensor.dtype(),
                        shape = x.tensor.shape()](Backward& backward) {
    const Tensor dy = backward.take(id);
    if (!dy.defined() || x_id < 0) return;
    Context& context = backward.context();
    const Tensor sums = context.activation(sum_dtype(dtype), shape);
    context.device.zero(sums, context.stream);
    context.kernels.run(
        EmbeddingBackward{.dtable = sums, .dy = dy, .ids = ids, .vocabulary_begin = first},
        context.stream);
    Tensor dx = sums;
    if (dtype != sums.dtype()) {
      dx = context.activation(dtype, shape);
      context.kernels.run(Copy{.dst = dx, .src = sums}, context.stream);
    }
    backward.give(x_id, std::move(dx));
  });
  return result;
}

}  // namespace piton
