// Dropout with bias and residual.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/mask.cuh"

namespace piton::cuda {
namespace {

// Y: of y and the residual, T: of the rest.
template <typename Y, typename T>
struct DropAndAdd {
  static constexpr int kVector = kVectorOf<Y, T>;
  Y* y;
  const T* x;
  const T* bias;      // or nullptr
  const Y* residual;  // or nullptr; may be y
  std::int64_t h;
  MaskSite site;

  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    using S = Wide<T>;
    const std::int64_t at = row * h + column;
    auto sum = load_wide<kCount>(x + at);
    const auto before = load_or_zero<kCount>(residual != nullptr ? residual + at : nullptr);
    if (bias != nullptr) {
      const auto term = load_wide<kCount>(bias + column);
      for (int i = 0; i < kCount; ++i) sum.at[i] += term.at[i];
    }
    const auto factors = site.row_factors<S, kCount>(row, column);
    for (int i = 0; i < kCount; ++i) sum.at[i] *= factors.at[i];
    if (residual != nullptr) {
      for (int i = 0; i < kCount; ++i) sum.at[i] += before.at[i];
    }
    store_rounded(y + at, sum);
  }
};

// dx, and the gradient of the bias from numbers that are not rounded.
template <typename Y, typename T>
struct DropGradient {
  static constexpr int kVector = kVectorOf<Y, T>;
  static constexpr int kSums = 1;
  static constexpr int kRowsAtOnce = 1;  // it also writes
  using Sum = Wide<Y>;
  T* dx;  // may be dy, if of its type
  const Y* dy;
  std::int64_t h;
  MaskSite site;

  template <int kCount>
  __device__ __forceinline__ Numbers<Sum, kCount> written(std::int64_t row,
                                                          std::int64_t column) const {
    auto gradient = load_wide<kCount>(dy + row * h + column);
    const auto factors = site.row_factors<Sum, kCount>(row, column);
    for (int i = 0; i < kCount; ++i) gradient.at[i] *= factors.at[i];
    store_rounded(dx + row * h + column, gradient);
    return gradient;
  }
  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    written<kCount>(row, column);
  }
  template <int kCount>
  __device__ void add(std::int64_t row, std::int64_t column,
                      Numbers<Sum, kCount> (&sums)[kSums]) const {
    const auto gradient = written<kCount>(row, column);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[0].at[i] += gradient.at[i];
  }
};

}  // namespace

void execute(const DropoutAddForward& call, const CallContext& context) {
  with_stream(call.y.dtype(), call.x.dtype(),
              [&]<typename Y, typename T>(std::type_identity<Y>, std::type_identity<T>) {
                using Body = DropAndAdd<Y, T>;
                launch_rows(
                    "launch of dropout add forward",
                    rows_of(call.x, Body::kVector, {call.y, call.x, call.bias, call.residual}),
                    Body{pointer<Y>(call.y), pointer<const T>(call.x), pointer<const T>(call.bias),
                         pointer<const Y>(call.residual), call.x.dim(1), mask_site(call.dropout)},
                    context.stream);
              });
}

void execute(const DropoutAddBackward& call, const CallContext& context) {
  with_stream(
      call.dy.dtype(), call.dx.dtype(),
      [&]<typename Y, typename T>(std::type_identity<Y>, std::type_identity<T>) {
        using Body = DropGradient<Y, T>;
        const Extent extent = rows_of(call.dy, Body::kVector, {call.dx, call.dy});
        const Body body{pointer<T>(call.dx), pointer<const Y>(call.dy), call.dy.dim(1),
                        mask_site(call.dropout)};
        if (call.dbias.defined()) {
          launch_column_sums("launch of dropout add backward", {extent, call.dbias}, body, context);
        } else {
          launch_rows("launch of dropout add backward", extent, body, context.stream);
        }
      });
}

}  // namespace piton::cuda
