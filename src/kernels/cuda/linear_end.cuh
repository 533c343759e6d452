// What follows a product that was left in scratch: bias, residual and activation, rounded once.
// Internal to this folder.
#pragma once

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/linear.h"

namespace piton::cuda {

// T: of y, residual and preactivation; B: of the bias.
template <typename T, typename B>
struct LinearEnd {
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

  __device__ void operator()(std::int64_t index) const {
    const std::int64_t row = index / out;
    const std::int64_t column = index % out;
    Wide<T> sum = sums[index];
    if (bias != nullptr) sum += widen(bias[column]);
    if (residual != nullptr) sum += widen(residual[row * residual_stride + column]);
    if (preactivation != nullptr)
      preactivation[row * preactivation_stride + column] = narrow<T>(sum);
    y[row * y_stride + column] = narrow<T>(activates ? activated(kind, sum) : sum);
  }
};

}  // namespace piton::cuda
