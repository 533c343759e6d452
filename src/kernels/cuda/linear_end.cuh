// What follows a product that was left in scratch: bias, residual and activation, rounded once.
// Internal to this folder.
#pragma once

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/linear.h"

namespace piton::cuda {

// T: of y, residual and preactivation; B: of the bias.
template <typename T, typename B>
struct LinearEnd {
  static constexpr int kVector = kVectorOf<T, B, Wide<T>>;
  T* y;
  T* preactivation;     // or nullptr
  const T* residual;    // or nullptr; may be y or preactivation
  const B* bias;        // or nullptr
  const Wide<T>* sums;  // [n, out] contiguous
  std::int64_t y_stride;
  std::int64_t preactivation_stride;
  std::int64_t residual_stride;
  std::int64_t out;
  bool activates;
  ActivationKind kind;

  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    auto sum = load<kCount>(sums + row * out + column);
    if (bias != nullptr) {
      const auto term = load_wide<kCount>(bias + column);
      for (int i = 0; i < kCount; ++i) sum.at[i] += term.at[i];
    }
    if (residual != nullptr) {
      const auto term = load_wide<kCount>(residual + row * residual_stride + column);
      for (int i = 0; i < kCount; ++i) sum.at[i] += term.at[i];
    }
    if (preactivation != nullptr)
      store_rounded(preactivation + row * preactivation_stride + column, sum);
    if (activates) {
      for (Wide<T>& one : sum.at) one = activated(kind, one);
    }
    store_rounded(y + row * y_stride + column, sum);
  }
};

}  // namespace piton::cuda
