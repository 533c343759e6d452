#include "ops/linear/linear_steps.h"

namespace piton {

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

WeightUse weight_forward(Context& context, const SplitWeight& split, std::int64_t rows) {
  if (split.float8.given())
    return context.weights.acquire(split.weight, WeightForm::kRows, context.stream);
  return acquire_forward(context.weights, split.weight, rows, context.kernels, context.stream);
}

WeightUse weight_backward(Context& context, const SplitWeight& split) {
  const WeightForm form = split.float8.given() ? WeightForm::kRows : WeightForm::kBackward;
  return context.weights.acquire(split.weight, form, context.stream);
}

void weight_gradient(Context& context, const SplitWeight& split, Parameter* bias, const Tensor& dy,
                     const Tensor& x) {
  Parameter& weight = split.weight;
  const auto [dweight, overwrites] = context.weights.gradient_buffer(weight, context.stream);
  Tensor dbias = bias != nullptr ? context.weights.gradient(*bias, context.stream) : Tensor();
  PITON_ASSERT(dweight.defined() || !dbias.defined(), "{}: a frozen weight with a trained bias",
               weight.name);
  if (!dweight.defined()) return;
  context.kernels.run(LinearBackwardWeight{.dweight = dweight,
                                           .dbias = dbias,
                                           .dy = dy,
                                           .x = x,
                                           .overwrites = overwrites,
                                           .float8 = split.float8},
                      context.stream);
  context.weights.contribute(weight, context.stream);
  if (dbias.defined()) context.weights.contribute(*bias, context.stream);
}

Kept keep_for_gradients(Context& context, const Tensor& x, const Parameter& weight,
                        const std::vector<LinearAdapter>& adapters) {
  if (!weight.trainable && adapters.empty()) return {};
  return context.tape->keep(x);
}

int cut_of(const SplitWeight& split, const ProductShape& shape, std::int64_t bytes) {
  if (split.group.size() == 1) return 1;
  const int slices = split.strategy.slices_of(shape);
  if (slices != kFused) return slices;
  return split.shared != nullptr && split.shared->fits(bytes) ? kFused : 1;
}

GatheredSlices::GatheredSlices(Context& context, const Tensor& mine, Communicator& group,
                               int slices)
    : rows(mine.dim(0)), ranges(cut_rows(rows, slices, context.kernels.row_tile())) {
  parts.resize(ranges.size());
  ready.resize(ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    parts[i] = gather(context, mine.slice(0, ranges[i].begin, ranges[i].size), group, ready[i]);
  }
}

}  // namespace piton
