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

double number_of(std::uint16_t bits, bool half) {
  return half ? to_float(Float16{bits}) : to_float(BFloat16{bits});
}

// The number in the low half (0) or the high one (1).
double number_in(std::uint32_t pair, int which, bool half) {
  return number_of(static_cast<std::uint16_t>(which == 0 ? pair : pair >> 16), half);
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

void multiply_rows(bool half, float (*sums)[4], const std::uint16_t (*rows)[16],
                   const std::uint16_t (*columns)[16], bool adds) {
  for (int i = 0; i < 2; ++i) {
    for (int c = 0; c < 16; ++c) {
      float& mine = sums[c / 2][2 * i + c % 2];
      double sum = adds ? mine : 0.0;
      for (int k = 0; k < 16; ++k)
        sum += number_of(rows[i][k], half) * number_of(columns[c][k], half);
      mine = static_cast<float>(sum);
    }
  }
}

}  // namespace piton::emulator
