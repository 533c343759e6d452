// Row by row of one query and head: reading memory takes longer than the arithmetic.
#include "kernels/attention_merge.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/context.h"

namespace piton::cpu {

void execute(CpuContext& context, const AttentionMerge& call) {
  const std::int64_t queries = call.part.dim(1);
  const std::int64_t heads = call.part.dim(2);
  const std::int64_t d = call.part.dim(3);
  const Type type = type_of(call.part.dtype());
  const std::int64_t part_bytes = d * size_bytes(call.part.dtype());
  const auto merge = [&](std::int64_t row, float* wide) {
    const std::int64_t sample = row / (queries * heads);
    const std::int64_t query = row / heads % queries;
    const std::int64_t at = (sample * heads + row % heads) * queries + query;
    float& whole = call.lse.data<float>()[at];
    const float own = call.part_lse.data<float>()[at];
    const float most = whole > own ? whole : own;  // a NaN stays one
    if (most == -std::numeric_limits<float>::infinity()) return;
    const float w = std::exp(whole - most);
    const float u = std::exp(own - most);
    const float kept = w / (w + u);
    const float added = u / (w + u);
    context.vector.convert(wide, Type::kF32, call.part.raw() + row * part_bytes, type, d);
    float* out = call.out.data<float>() + row * d;
    for (std::int64_t i = 0; i < d; ++i) out[i] = kept * out[i] + added * wide[i];
    whole = most + std::log(w + u);
  };
  const std::int64_t float_bytes = d * static_cast<std::int64_t>(sizeof(float));
  context.ranges(call.part.elements() / d, grain_of(float_bytes),
                 [&](std::int64_t begin, std::int64_t end) {
                   auto* wide = reinterpret_cast<float*>(context.scratch.own(float_bytes));
                   for (std::int64_t row = begin; row < end; ++row) merge(row, wide);
                 });
}

}  // namespace piton::cpu
