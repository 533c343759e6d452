// Layer norm and RMS norm: one block per row, and one per 32 columns for the gradients of gain and
// bias. The order of the sums depends only on sizes.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/reduce.cuh"

namespace piton::cuda {
namespace {

// X: of x and its gradient, T: of the rest.
template <typename X, typename T>
struct NormRows {
  T* y;
  Wide<T>* mean;  // nullptr: RMS norm
  Wide<T>* rstd;
  const X* x;
  const T* gain;
  const T* bias;  // or nullptr
  Wide<T> eps;
  Wide<T> gain_offset;
  std::int64_t n;
  std::int64_t h;
};

// Three passes over the row, for mean, variance and result. Summing squared differences from the
// mean avoids the cancellation of sum(x^2) - sum(x)^2, and the row stays in the caches.
template <typename X, typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) norm_rows(NormRows<X, T> rows) {
  using S = Wide<T>;
  S* parts = shared_array<S>();
  const S size = static_cast<S>(rows.h);
  for (std::int64_t row = blockIdx.x; row < rows.n; row += gridDim.x) {
    const X* x = rows.x + row * rows.h;
    T* y = rows.y + row * rows.h;
    S mean = 0;
    if (rows.mean != nullptr) {
      S sum = 0;
      for (std::int64_t i = threadIdx.x; i < rows.h; i += kThreads) sum += widen(x[i]);
      mean = block_sum(sum, parts) / size;
    }
    S squares = 0;
    for (std::int64_t i = threadIdx.x; i < rows.h; i += kThreads) {
      const S difference = widen(x[i]) - mean;
      squares += difference * difference;
    }
    const S rstd = S{1} / sqrt(block_sum(squares, parts) / size + rows.eps);
    for (std::int64_t i = threadIdx.x; i < rows.h; i += kThreads) {
      const S bias = rows.bias != nullptr ? widen(rows.bias[i]) : S{0};
      const S gain = widen(rows.gain[i]) + rows.gain_offset;
      y[i] = narrow<T>(fma((widen(x[i]) - mean) * rstd, gain, bias));
    }
    if (threadIdx.x == 0) {
      if (rows.mean != nullptr) rows.mean[row] = mean;
      rows.rstd[row] = rstd;
    }
  }
}

template <typename X, typename T>
struct NormGradient {
  X* dx;
  const T* dy;
  const X* dresidual;  // or nullptr
  const X* x;
  const T* gain;
  const Wide<T>* mean;  // nullptr: RMS norm
  const Wide<T>* rstd;
  Wide<T> gain_offset;
  std::int64_t n;
  std::int64_t h;

  __device__ Wide<T> normalized(std::int64_t row, std::int64_t i) const {
    const Wide<T> center = mean != nullptr ? mean[row] : Wide<T>{0};
    return (widen(x[row * h + i]) - center) * rstd[row];
  }
  __device__ Wide<T> g(std::int64_t row, std::int64_t i) const {
    return widen(dy[row * h + i]) * (widen(gain[i]) + gain_offset);
  }
};

template <typename X, typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) norm_gradient_rows(NormGradient<X, T> rows) {
  using S = Wide<T>;
  S* parts = shared_array<S>();
  const S size = static_cast<S>(rows.h);
  for (std::int64_t row = blockIdx.x; row < rows.n; row += gridDim.x) {
    S sum_g = 0;
    S sum_gn = 0;
    for (std::int64_t i = threadIdx.x; i < rows.h; i += kThreads) {
      const S g = rows.g(row, i);
      sum_g += g;
      sum_gn += g * rows.normalized(row, i);
    }
    const S mean_g = rows.mean != nullptr ? block_sum(sum_g, parts) / size : S{0};
    const S mean_gn = block_sum(sum_gn, parts) / size;
    const S rstd = rows.rstd[row];
    for (std::int64_t i = threadIdx.x; i < rows.h; i += kThreads) {
      const std::int64_t at = row * rows.h + i;
      const S residual = rows.dresidual != nullptr ? widen(rows.dresidual[at]) : S{0};
      const S inner = rows.g(row, i) - mean_g - rows.normalized(row, i) * mean_gn;
      rows.dx[at] = narrow<X>(rstd * inner + residual);
    }
  }
}

// The terms of the gradients of the gain, and with kBias of the bias.
template <typename X, typename T, bool kBias>
struct GainTerms {
  static constexpr int kVector = kVectorOf<X, T>;
  static constexpr int kSums = kBias ? 2 : 1;
  using Sum = Wide<T>;
  const T* dy;
  const X* x;
  const Sum* mean;  // nullptr: RMS norm
  const Sum* rstd;
  std::int64_t h;

  template <int kCount>
  __device__ void add(std::int64_t row, std::int64_t column,
                      Numbers<Sum, kCount> (&sums)[kSums]) const {
    const auto value = load_wide<kCount>(x + row * h + column);
    const auto gradient = load_wide<kCount>(dy + row * h + column);
    const Sum center = mean != nullptr ? mean[row] : Sum{0};
    const Sum scale = rstd[row];
    for (int i = 0; i < kCount; ++i) {
      sums[0].at[i] += gradient.at[i] * ((value.at[i] - center) * scale);
      if (kBias) sums[kSums - 1].at[i] += gradient.at[i];
    }
  }
};

template <bool kBias, typename X, typename T>
void launch_gains(const NormBackward& call, cudaStream_t stream) {
  using Body = GainTerms<X, T, kBias>;
  launch_column_sums(
      "launch of norm backward, gain and bias",
      {rows_of(call.x, Body::kVector, {call.dy, call.x}), call.dgain, call.dbias},
      Body{pointer<const T>(call.dy), pointer<const X>(call.x), pointer<const Wide<T>>(call.mean),
           pointer<const Wide<T>>(call.rstd), call.x.dim(1)},
      stream);
}

template <typename T>
LaunchShape shape_of_rows(std::int64_t n) {
  return {.blocks = {blocks_for(n, 1), 1, 1}, .shared_bytes = kWarps * sizeof(Wide<T>)};
}

}  // namespace

void execute(const NormForward& call, const CallContext& context) {
  const std::int64_t n = call.x.dim(0);
  if (n == 0) return;
  with_stream(call.x.dtype(), call.y.dtype(),
              [&]<typename X, typename T>(std::type_identity<X>, std::type_identity<T>) {
                launch("launch of norm forward", norm_rows<X, T>, shape_of_rows<T>(n),
                       NormRows<X, T>{.y = pointer<T>(call.y),
                                      .mean = pointer<Wide<T>>(call.mean),
                                      .rstd = pointer<Wide<T>>(call.rstd),
                                      .x = pointer<const X>(call.x),
                                      .gain = pointer<const T>(call.gain),
                                      .bias = pointer<const T>(call.bias),
                                      .eps = static_cast<Wide<T>>(call.eps),
                                      .gain_offset = static_cast<Wide<T>>(call.gain_offset),
                                      .n = n,
                                      .h = call.x.dim(1)},
                       context.stream);
              });
}

void execute(const NormBackward& call, const CallContext& context) {
  const std::int64_t n = call.x.dim(0);
  const std::int64_t h = call.x.dim(1);
  if (n == 0) return;
  with_stream(call.x.dtype(), call.dy.dtype(),
              [&]<typename X, typename T>(std::type_identity<X>, std::type_identity<T>) {
                using S = Wide<T>;
                const NormGradient<X, T> rows{.dx = pointer<X>(call.dx),
                                              .dy = pointer<const T>(call.dy),
                                              .dresidual = pointer<const X>(call.dresidual),
                                              .x = pointer<const X>(call.x),
                                              .gain = pointer<const T>(call.gain),
                                              .mean = pointer<const S>(call.mean),
                                              .rstd = pointer<const S>(call.rstd),
                                              .gain_offset = static_cast<S>(call.gain_offset),
                                              .n = n,
                                              .h = h};
                if (call.dbias.defined()) {
                  launch_gains<true, X, T>(call, context.stream);
                } else if (call.dgain.defined()) {
                  launch_gains<false, X, T>(call, context.stream);
                }
                launch("launch of norm backward", norm_gradient_rows<X, T>, shape_of_rows<T>(n),
                       rows, context.stream);
              });
}

}  // namespace piton::cuda
