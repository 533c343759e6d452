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
  const Wide<T>* sums;  // [n, out]; only for run()
  std::int64_t sums_stride;
  std::int64_t y_stride;
  std::int64_t preactivation_stride;
  std::int64_t residual_stride;
  std::int64_t out;
  bool activates;
  ActivationKind kind;

  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    finish(row, column, load<kCount>(sums + row * sums_stride + column));
  }
  __device__ void finish(std::int64_t row, std::int64_t column, Wide<T> sum) const {
    finish(row, column, Numbers<Wide<T>, 1>{{sum}});
  }
  template <int kCount>
  __device__ void finish(std::int64_t row, std::int64_t column,
                         Numbers<Wide<T>, kCount> sum) const {
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

inline std::int64_t row_stride_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.stride(0) : 0;
}

// `sums`: contiguous; or nullptr, for finish() alone.
template <typename T, typename B>
LinearEnd<T, B> linear_end(const LinearForward& call, const Wide<T>* sums) {
  return {.y = pointer<T>(call.y),
          .preactivation = pointer<T>(call.preactivation),
          .residual = pointer<const T>(call.residual),
          .bias = pointer<const B>(call.bias),
          .sums = sums,
          .sums_stride = call.weight.out,
          .y_stride = call.y.stride(0),
          .preactivation_stride = row_stride_of(call.preactivation),
          .residual_stride = row_stride_of(call.residual),
          .out = call.weight.out,
          .activates = call.activation.has_value(),
          .kind = call.activation.value_or(ActivationKind::kSilu)};
}

}  // namespace piton::cuda
