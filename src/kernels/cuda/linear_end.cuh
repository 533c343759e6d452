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
  const Wide<T>* sums;  // [n, out] contiguous; only for operator()
  std::int64_t y_stride;
  std::int64_t preactivation_stride;
  std::int64_t residual_stride;
  std::int64_t out;
  bool activates;
  ActivationKind kind;

  __device__ void operator()(std::int64_t index) const {
    finish(index / out, index % out, sums[index]);
  }
  __device__ void finish(std::int64_t row, std::int64_t column, Wide<T> sum) const {
    if (bias != nullptr) sum += widen(bias[column]);
    if (residual != nullptr) sum += widen(residual[row * residual_stride + column]);
    if (preactivation != nullptr)
      preactivation[row * preactivation_stride + column] = narrow<T>(sum);
    y[row * y_stride + column] = narrow<T>(activates ? activated(kind, sum) : sum);
  }
};

inline std::int64_t row_stride_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.stride(0) : 0;
}

// `sums`: or nullptr, for finish() alone.
template <typename T, typename B>
LinearEnd<T, B> linear_end(const LinearForward& call, const Wide<T>* sums) {
  return {.y = pointer<T>(call.y),
          .preactivation = pointer<T>(call.preactivation),
          .residual = pointer<const T>(call.residual),
          .bias = pointer<const B>(call.bias),
          .sums = sums,
          .y_stride = call.y.stride(0),
          .preactivation_stride = row_stride_of(call.preactivation),
          .residual_stride = row_stride_of(call.residual),
          .out = call.weight.out,
          .activates = call.activation.has_value(),
          .kind = call.activation.value_or(ActivationKind::kSilu)};
}

}  // namespace piton::cuda
