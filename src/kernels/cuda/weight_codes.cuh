// Values of quantized weights in device code (kernels/call.h). Internal to this folder.
#pragma once

#include <type_traits>
#include <utility>

#include "kernels/call.h"
#include "kernels/cuda/element.cuh"

namespace piton::cuda {

template <int i>
inline constexpr float kNf4Value = kNf4Values[i];

// A value of NF4 without memory: a lookup by numbers that differ between lanes would be slow.
__device__ inline float nf4_value(std::uint32_t code) {
  float value = kNf4Value<0>;
  [&]<unsigned... i>(std::integer_sequence<unsigned, i...>) {
    ((value = code == i ? kNf4Value<i> : value), ...);
  }
  (std::make_integer_sequence<unsigned, 16>{});
  return value;
}

// Of a weight [out, in]. `Scale`: float, __half, or std::int8_t, which has factors in blocks.
template <typename Scale>
struct DeviceCodes {
  using Minimum = std::conditional_t<std::is_same_v<Scale, std::int8_t>, std::int8_t, float>;
  const std::uint8_t* codes;
  const Scale* scales;
  const float* zeros;         // or nullptr
  const Minimum* minima;      // or nullptr
  const float* block_scales;  // or nullptr
  const float* block_minima;
  std::int64_t in;
  std::int64_t group;
  std::int64_t groups;
  CodeKind kind;

  __device__ std::int64_t row_bytes() const { return kind == CodeKind::kInt8 ? in : (in + 1) / 2; }
};

// Element `at` of scales or minima, counted over all rows.
template <typename S, typename Scale>
__device__ inline S scale_at(const Scale* values, const float* blocks, std::int64_t group,
                             std::int64_t at) {
  if constexpr (std::is_same_v<Scale, std::int8_t>) {
    return static_cast<S>(values[at]) * static_cast<S>(blocks[at * group / kScaleBlock]);
  } else {
    return static_cast<S>(widen(values[at]));
  }
}

// How the codes of a group become values of type T: computed in Wide<T>, and rounded once.
template <typename T>
struct CodeGroup {
  using S = Wide<T>;
  CodeKind kind;
  S scale;
  S zero;
  S minimum;

  template <typename Scale>
  __device__ CodeGroup(const DeviceCodes<Scale>& rows, std::int64_t row, std::int64_t column)
      : kind(rows.kind) {
    const std::int64_t at = row * rows.groups + column / rows.group;
    scale = scale_at<S>(rows.scales, rows.block_scales, rows.group, at);
    zero = rows.zeros != nullptr                               ? static_cast<S>(rows.zeros[at])
           : kind == CodeKind::kInt4 && rows.minima == nullptr ? S{8}
                                                               : S{0};
    minimum =
        rows.minima != nullptr ? scale_at<S>(rows.minima, rows.block_minima, rows.group, at) : S{0};
  }

  // `code`: its bits, from the lowest on.
  __device__ S value(std::uint32_t code) const {
    if (kind == CodeKind::kNf4) return scale * static_cast<S>(nf4_value(code & 15U)) - minimum;
    const int number = kind == CodeKind::kInt8
                           ? static_cast<int>(static_cast<std::int8_t>(code & 255U))
                           : static_cast<int>(code & 15U);
    return scale * (static_cast<S>(number) - zero) - minimum;
  }
};

template <typename Scale>
DeviceCodes<Scale> coded_rows(const WeightCodes& codes, std::int64_t in) {
  return {.codes = pointer<const std::uint8_t>(codes.codes),
          .scales = pointer<const Scale>(codes.scales),
          .zeros = pointer<const float>(codes.zeros),
          .minima = pointer<const typename DeviceCodes<Scale>::Minimum>(codes.minima),
          .block_scales = pointer<const float>(codes.block_scales),
          .block_minima = pointer<const float>(codes.block_minima),
          .in = in,
          .group = codes.group,
          .groups = codes.scales.dim(1),
          .kind = codes.kind};
}

// use(DeviceCodes<Scale>).
template <typename Use>
void with_coded_rows(const WeightCodes& codes, std::int64_t in, Use&& use) {
  if (codes.block_scales.defined()) return use(coded_rows<std::int8_t>(codes, in));
  if (codes.scales.dtype() == DType::kF16) return use(coded_rows<__half>(codes, in));
  use(coded_rows<float>(codes, in));
}

}  // namespace piton::cuda
