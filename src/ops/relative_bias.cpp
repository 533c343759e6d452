#include "ops/relative_bias.h"

#include <algorithm>
#include <cmath>

namespace piton {

std::int32_t DistanceBuckets::of(std::int64_t distance) const {
  const std::int64_t of_direction = both_directions ? buckets / 2 : buckets;
  const std::int64_t begin = both_directions && distance > 0 ? of_direction : 0;
  const std::int64_t far =
      both_directions ? std::abs(distance) : std::max<std::int64_t>(-distance, 0);
  const std::int64_t exact = of_direction / 2;
  if (far < exact) return static_cast<std::int32_t>(begin + far);
  // In float, as Transformers: a distance at the end of a bucket is in the same one.
  const float power =
      std::log(static_cast<float>(far) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(farthest) / static_cast<double>(exact))) *
      static_cast<float>(of_direction - exact);
  const std::int64_t bucket = exact + static_cast<std::int64_t>(power);
  return static_cast<std::int32_t>(begin + std::min(bucket, of_direction - 1));
}

std::vector<std::int32_t> DistanceBuckets::of_range(std::int64_t first, std::int64_t count) const {
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(of(first + i));
  return ids;
}

Value relative_bias(Context& context, const Tensor& ids, Parameter& table) {
  const std::int64_t width = ids.dim(0);
  const std::int64_t heads = table.shape[1];
  const DType sums = sum_dtype(table.dtype);
  const Tensor rows = context.activation(table.dtype, {width, heads});
  {
    const WeightUse use = context.weights.acquire(table, WeightForm::kRows, context.stream);
    context.kernels.run(EmbeddingForward{.y = rows, .table = use.rows(), .ids = ids},
                        context.stream);
  }
  const Tensor bias = context.activation(sums, {heads, width});
  context.kernels.run(Copy{.dst = bias, .src = rows.swap_dims(0, 1)}, context.stream);
  if (context.tape == nullptr) return {bias};
  const Value result = context.tape->output(bias);
  context.tape->record(
      [id = result.id, kept_ids = context.tape->keep(ids), sums, &table](Backward& backward) {
        const Tensor dbias = backward.take(id);  // [b, a/t, w]
        if (!dbias.defined()) return;
        backward.defer([dbias, kept_ids, sums, &table](Context& context) {
          const Tensor dtable = context.weights.gradient(table, context.stream);
          if (!dtable.defined()) return;
          const Tensor ids = kept_ids.get();
          const Tensor rows = context.activation(sums, {ids.dim(0), dbias.dim(1)});
          for (std::int64_t sample = 0; sample < dbias.dim(0); ++sample) {
            context.kernels.run(Copy{.dst = rows, .src = dbias.select(0, sample).swap_dims(0, 1)},
                                context.stream);
            context.kernels.run(EmbeddingBackward{.dtable = dtable, .dy = rows, .ids = ids},
                                context.stream);
          }
          context.weights.contribute(table, context.stream);
        });
      });
  return result;
}

}  // namespace piton
