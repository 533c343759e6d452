#include "cuda_emulator/tensor_cores.h"

#include <algorithm>

#include "cuda_emulator/launcher.h"
#include "tensor/dtype.h"

namespace piton::emulator {
namespace {

struct Fragments {
  std::uint32_t left[4];
  std::uint32_t right[2];
};

// The number in the low half (0) or the high one (1).
double number_in(std::uint32_t pair, int which, bool half) {
  const auto bits = static_cast<std::uint16_t>(which == 0 ? pair : pair >> 16);
  return half ? to_float(Float16{bits}) : to_float(BFloat16{bits});
}

}  // namespace

void multiply_fragments(bool half, float* sums, const std::uint32_t* left,
                        const std::uint32_t* right) {
  Fragments mine{};
  std::copy_n(left, 4, mine.left);
  std::copy_n(right, 2, mine.right);
  Fragments all[kWarpSize];
  gather(0xFFFFFFFFU, &mine, sizeof mine, all);
  const int g = lane() / 4;
  const int p = lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int column = 2 * p + i % 2;
    double sum = sums[i];
    for (int k = 0; k < 16; ++k) {
      const Fragments& of_row = all[4 * g + k % 8 / 2];
      const Fragments& of_column = all[4 * column + k % 8 / 2];
      sum += number_in(of_row.left[i / 2 + k / 8 * 2], k % 2, half) *
             number_in(of_column.right[k / 8], k % 2, half);
    }
    sums[i] = static_cast<float>(sum);
  }
}

}  // namespace piton::emulator
