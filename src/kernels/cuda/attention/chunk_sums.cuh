// What the kernels share that attend to a cache by chunks of keys. Internal to this folder.
#pragma once

#include "kernels/cuda/attention/cached_grid.cuh"

namespace piton::cuda {

// Part `of` another softmax with the largest score `most`.
__device__ inline float chunk_weight(float largest, float sum, float most) {
  return sum == 0 ? 0.0F : exp2f((largest - most) * kLogE2);
}

__device__ inline float lse_of(float largest, float sum) {
  return sum == 0 ? kNothing : largest + logf(sum);
}

// Codes of 8 bits times their scale.
template <typename T>
__device__ uint4 eight_codes(const uint2& codes, float scale) {
  const auto value = [&](std::uint32_t word, int i) {
    return scale * static_cast<float>(static_cast<std::int8_t>(word >> 8 * i & 0xFFU));
  };
  return {rounded_pair<T>(value(codes.x, 0), value(codes.x, 1)),
          rounded_pair<T>(value(codes.x, 2), value(codes.x, 3)),
          rounded_pair<T>(value(codes.y, 0), value(codes.y, 1)),
          rounded_pair<T>(value(codes.y, 2), value(codes.y, 3))};
}

// Channels c .. c + 7 of a row, those from d on as 0. `vectors`: rows begin at multiples of 16
// bytes.
template <typename T, typename Row>
__device__ uint4 eight_channels(const Row& row, std::int64_t c, std::int64_t d, bool vectors) {
  if (vectors && c + 8 <= d) {
    if constexpr (std::is_pointer_v<Row>) {
      return *reinterpret_cast<const uint4*>(row + c);
    } else {
      return eight_codes<T>(*reinterpret_cast<const uint2*>(row.codes + c), row.scale);
    }
  }
  const auto value = [&](int i) { return c + i < d ? widen(row[c + i]) : 0.0F; };
  return {rounded_pair<T>(value(0), value(1)), rounded_pair<T>(value(2), value(3)),
          rounded_pair<T>(value(4), value(5)), rounded_pair<T>(value(6), value(7))};
}

}  // namespace piton::cuda
