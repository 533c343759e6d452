// Writing to a cache in pages: values as they are, or as codes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cached_attention.h"
#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

// The nearest integer, ties to even, for |x| < 2^22: the sum has no bits below 1. In this form the
// loop is vectorized.
float nearest(float x) {
  constexpr float kShift = 3 << 22;
  return (x + kShift) - kShift;
}

// Writes the codes of x [d]; returns their scale.
float write_codes(std::int8_t* to, const float* x, std::int64_t d) {
  float largest = 0;
  float zeros = 0;  // 0 times each value: NaN if one is not finite
  for (std::int64_t i = 0; i < d; ++i) {
    largest = std::max(largest, std::abs(x[i]));
    zeros += x[i] * 0;
  }
  const float scale = largest / 127;
  if (zeros != 0 || !(scale > 0)) {
    std::fill_n(to, d, std::int8_t{0});
    return zeros != 0 ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
  }
  for (std::int64_t i = 0; i < d; ++i)
    to[i] = static_cast<std::int8_t>(std::clamp(nearest(x[i] / scale), -127.0F, 127.0F));
  return scale;
}

}  // namespace

void execute(CpuContext& context, const CacheAppend& call) {
  const auto* slots = call.slots.data<std::int32_t>();
  const bool coded = call.scales.defined();
  const std::int64_t heads = call.rows.dim(1);
  const std::int64_t width = size_bytes(call.rows.dtype());
  const std::int64_t d = call.rows.dim(2);
  const std::int64_t cached_width = size_bytes(call.cache.dtype());
  const std::int64_t cached_rows = call.cache.dim(0) * kCachePage;
  const auto append = [&](std::int64_t begin, std::int64_t end) {
    auto* numbers = coded ? reinterpret_cast<float*>(context.scratch.own(d * 4)) : nullptr;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t slot = slots[row];
      PITON_ASSERT(slot >= 0 && slot < cached_rows, "{}: slot {} of {}", CacheAppend::kName, slot,
                   cached_rows);
      const std::byte* from = call.rows.raw() + row * call.rows.stride(0) * width;
      std::byte* to = call.cache.raw() + (slot / kCachePage * call.cache.stride(0) +
                                          slot % kCachePage * call.cache.stride(1)) *
                                             cached_width;
      for (std::int64_t head = 0; head < heads; ++head) {
        const std::byte* x = from + head * call.rows.stride(1) * width;
        std::byte* place = to + head * call.cache.stride(2) * cached_width;
        if (!coded) {
          std::memcpy(place, x, static_cast<std::size_t>(d * width));
          continue;
        }
        context.vector.convert(numbers, Type::kF32, x, type_of(call.rows.dtype()), d);
        call.scales.data<float>()[slot / kCachePage * call.scales.stride(0) + slot % kCachePage +
                                  head * call.scales.stride(2)] =
            write_codes(reinterpret_cast<std::int8_t*>(place), numbers, d);
      }
    }
  };
  context.ranges(call.rows.dim(0), grain_of(2 * heads * d * width), append);
}

}  // namespace piton::cpu
