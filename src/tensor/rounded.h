// Numbers of the host in element types.
#pragma once

#include <type_traits>

#include "tensor/dtype.h"

namespace piton {

// `value`, fp64 or fp32, rounded to T. From fp64 to 16 bits a value is rounded to fp32 first, as in
// the kernels (fp64 is for checks, not for training).
template <typename T, typename From>
T rounded(From value) {
  static_assert(std::is_floating_point_v<From>);
  if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, Float16>) {
    return to_float16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace piton
