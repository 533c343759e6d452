// Rotary embedding: tokens are divided among threads.
#include "kernels/rotary.h"

#include "kernels/cpu/context.h"

namespace piton::cpu {

void execute(CpuContext& context, const Rotary& call) {
  const std::int64_t heads = call.x.dim(1);
  const std::int64_t d = call.x.dim(2);
  const std::int64_t width = size_bytes(call.x.dtype());
  const Type type = type_of(call.x.dtype());
  const auto* positions = call.positions.data<std::int32_t>();
  const bool pairs = call.convention == Rotary::Convention::kPairs;
  const float sign = call.inverse ? -1.0F : 1.0F;
  context.ranges(call.x.dim(0), grain_of(heads * d * 4), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* cosine = call.cosine.data<float>() + positions[row] * call.cosine.stride(0);
      const float* sine = call.sine.data<float>() + positions[row] * call.sine.stride(0);
      for (std::int64_t head = 0; head < heads; ++head) {
        std::byte* x = call.x.raw() + (row * call.x.stride(0) + head * call.x.stride(1)) * width;
        context.vector.rotary(x, type, cosine, sine, d, pairs, sign);
      }
    }
  });
}

}  // namespace piton::cpu
