// The norms read whole rows, so the parts of one group are copied next to each other first.
#include "ops/recurrent/norm_of_groups.h"

#include <utility>

namespace piton {
namespace {

// x [n, groups w] as [groups, n, w], a view.
Tensor parts_of(const Tensor& x, std::int64_t groups) {
  return x.split_dim(1, x.dim(1) / groups).swap_dims(0, 1);
}

Tensor copied_parts(Context& context, const Tensor& x, std::int64_t groups) {
  const std::int64_t w = x.dim(1) / groups;
  const Tensor parts = context.activation(x.dtype(), {groups, x.dim(0), w});
  context.kernels.run(Copy{.dst = parts, .src = parts_of(x, groups)}, context.stream);
  return parts;
}

// One of the parts, [n, w]; of a vector [groups, n], [n].
Tensor part(const Tensor& parts, std::int64_t group) {
  const Shape& shape = parts.shape();
  const Tensor one = parts.slice(0, group, 1);
  return shape.ndim() == 3 ? one.reshape({shape[1], shape[2]}) : one.reshape(Shape{shape[1]});
}

Tensor part_of_gain(const Tensor& gain, std::int64_t group, std::int64_t groups) {
  if (!gain.defined()) return gain;
  const std::int64_t w = gain.dim(0) / groups;
  return gain.slice(0, group * w, w);
}

}  // namespace

Value rms_norm_of_groups(Context& context, const Value& x, Parameter& gain, std::int64_t groups,
                         const NormSettings& settings) {
  const Shape shape = x.tensor.shape();
  PITON_ASSERT(shape[1] % groups == 0 && !settings.again, "{}: {} channels of {} groups", gain.name,
               shape[1], groups);
  const Tensor parts = copied_parts(context, x.tensor, groups);
  const Tensor normed = context.activation(gain.dtype, parts.shape());
  const Tensor rstd = context.activation(sum_dtype(parts.dtype()), {groups, shape[0]});
  {
    const WeightUse use = context.weights.acquire(gain, WeightForm::kRows, context.stream);
    for (std::int64_t group = 0; group < groups; ++group) {
      context.kernels.run(NormForward{.y = part(normed, group),
                                      .mean = {},
                                      .rstd = part(rstd, group),
                                      .x = part(parts, group),
                                      .gain = part_of_gain(use.rows(), group, groups),
                                      .eps = settings.eps,
                                      .gain_offset = settings.gain_offset},
                          context.stream);
    }
  }
  const Tensor y = context.activation(gain.dtype, shape);
  context.kernels.run(Copy{.dst = parts_of(y, groups), .src = normed}, context.stream);
  if (context.tape == nullptr) return {y};
  Value result = context.tape->output(y);
  context.tape->record([x_id = x.id, id = result.id, &gain, groups, shape,
                        gain_offset = settings.gain_offset, kept_parts = context.tape->keep(parts),
                        kept_rstd = context.tape->keep(rstd)](Backward& backward) {
    Context& context = backward.context();
    const Tensor dy = backward.take(id);
    if (!dy.defined()) return;
    const Tensor parts = kept_parts.get(), rstd = kept_rstd.get();
    const Tensor dparts = copied_parts(context, dy.reshape(shape), groups);
    const Tensor dnormed = context.activation(parts.dtype(), parts.shape());
    const Tensor dgain = context.weights.gradient(gain, context.stream);
    {
      const WeightUse use = context.weights.acquire(gain, WeightForm::kRows, context.stream);
      for (std::int64_t group = 0; group < groups; ++group) {
        context.kernels.run(NormBackward{.dx = part(dnormed, group),
                                         .dgain = part_of_gain(dgain, group, groups),
                                         .dbias = {},
                                         .dy = part(dparts, group),
                                         .dresidual = {},
                                         .x = part(parts, group),
                                         .gain = part_of_gain(use.rows(), group, groups),
                                         .mean = {},
                                         .rstd = part(rstd, group),
                                         .gain_offset = gain_offset},
                            context.stream);
      }
    }
    if (dgain.defined()) context.weights.contribute(gain, context.stream);
    Tensor dx = backward.place(x_id, parts.dtype(), shape);
    context.kernels.run(Copy{.dst = parts_of(dx, groups), .src = dnormed}, context.stream);
    backward.give(x_id, std::move(dx));
  });
  return result;
}

}  // namespace piton
