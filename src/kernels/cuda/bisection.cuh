// Bisection in device code. Internal to this folder.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace piton::cuda {

// The last number of low .. high for which `holds`: it does for low, and for none after one for
// which it does not.
template <typename Index, typename Holds>
__device__ Index last_that(Index low, Index high, const Holds& holds) {
  while (low < high) {
    const Index middle = (low + high + 1) / 2;
    if (holds(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Which of `count` texts has a row: text i has rows begins[i] .. begins[i + 1] - 1, and `row` is
// not before the first one.
__device__ inline std::int64_t text_of_row(const std::int32_t* begins, std::int64_t count,
                                           std::int64_t row) {
  return last_that(std::int64_t{0}, count - 1,
                   [&](std::int64_t text) { return begins[text] <= row; });
}

}  // namespace piton::cuda
