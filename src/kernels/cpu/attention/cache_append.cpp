// Writing to a cache in pages: values as they are, or as codes. Tokens are divided among threads.
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

// Where a row of the call is in keys or values, and their scales.
struct CachePlace {
  const Tensor& cache;
  const Tensor& scales;  // or empty
  std::int64_t slot;

  std::byte* row(std::int64_t head) const {
    return cache.raw() + (slot / kCachePage * cache.stride(0) +
                          slot % kCachePage * cache.stride(1) + head * cache.stride(2)) *
                             size_bytes(cache.dtype());
  }
  float& scale(std::int64_t head) const {
    return scales.data<float>()[slot / kCachePage * scales.stride(0) + slot % kCachePage +
                                head * scales.stride(2)];
  }
};

}  // namespace

void execute(CpuContext& context, const CacheAppend& call) {
  const auto* slots = call.slots.data<std::int32_t>();
  const std::int64_t heads = call.k.dim(1);
  const std::int64_t d = call.k.dim(2);
  const std::int64_t widest = std::max(d, call.v.dim(2));
  const Type type = type_of(call.k.dtype());
  const std::int64_t width = size_bytes(call.k.dtype());
  const std::int64_t cached_rows = call.keys.dim(0) * kCachePage;
  const bool pairs = call.convention == Rotary::Convention::kPairs;
  const std::int64_t rotated = call.rotated_channels();
  const auto head_of = [&](const Tensor& x, std::int64_t row, std::int64_t head) {
    return x.raw() + (row * x.stride(0) + head * x.stride(1)) * width;
  };
  const auto rotate = [&](std::byte* x, std::int64_t row) {
    const std::int64_t position = call.positions.data<std::int32_t>()[row];
    context.vector.rotary(x + call.first_channel * width, type,
                          call.cosine.data<float>() + position * call.cosine.stride(0),
                          call.sine.data<float>() + position * call.sine.stride(0), rotated, pairs,
                          1.0F);
  };
  // A head of one row. Codes are those of numbers that are rotated in `own`.
  const std::int64_t own_bytes = (widest * width + 63) / 64 * 64;
  const auto append_head = [&](const CachePlace& place, std::int64_t head, const std::byte* from,
                               std::byte* own, const auto& change) {
    const std::int64_t d = place.cache.dim(3);
    std::byte* x = place.scales.defined() ? own : place.row(head);
    std::memcpy(x, from, static_cast<std::size_t>(d * width));
    change(x);
    if (!place.scales.defined()) return;
    auto* numbers = reinterpret_cast<float*>(own + own_bytes);
    context.vector.convert(numbers, Type::kF32, x, type, d);
    place.scale(head) = write_codes(reinterpret_cast<std::int8_t*>(place.row(head)), numbers, d);
  };
  const auto append = [&](std::int64_t begin, std::int64_t end) {
    std::byte* own = context.scratch.own(own_bytes + widest * 4);
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t slot = slots[row];
      PITON_ASSERT(slot >= 0 && slot < cached_rows, "{}: slot {} of {}", CacheAppend::kName, slot,
                   cached_rows);
      for (std::int64_t head = 0; call.rotates() && head < call.q.dim(1); ++head)
        rotate(head_of(call.q, row, head), row);
      for (std::int64_t head = 0; head < heads; ++head) {
        append_head({call.keys, call.key_scales, slot}, head, head_of(call.k, row, head), own,
                    [&](std::byte* x) {
                      if (call.rotates()) rotate(x, row);
                    });
        append_head({call.values, call.value_scales, slot}, head, head_of(call.v, row, head), own,
                    [](std::byte*) {});
      }
    }
  };
  const std::int64_t queries = call.rotates() ? call.q.dim(1) : 0;
  context.ranges(call.k.dim(0), grain_of((queries + 4 * heads) * d * width), append);
}

}  // namespace piton::cpu
