// Layer norm and RMS norm: one block per row. The order of the sums depends only on the row length.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/element.cuh"

namespace piton::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;

// The sum of `mine` over all threads of the block; every thread gets it. `parts` has kWarps
// elements.
template <typename S>
__device__ S block_sum(S mine, S* parts) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    mine += __shfl_xor_sync(0xFFFFFFFFU, mine, distance);
  }
  __syncthreads();  // `parts` may still be in use by the previous sum
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = mine;
  __syncthreads();
  S sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += parts[warp];
  return sum;
}

template <typename T>
struct NormRows {
  T* y;
  Wide<T>* mean;  // nullptr: RMS norm
  Wide<T>* rstd;
  const T* x;
  const T* gain;
  const T* bias;  // or nullptr
  Wide<T> eps;
  Wide<T> gain_offset;
  std::int64_t n;
  std::int64_t h;
};

// Three passes over the row, for mean, variance and result. Summing squared differences from the
// mean avoids the cancellation of sum(x^2) - sum(x)^2, and the row stays in the caches.
template <typename T>
__global__ void norm_rows(NormRows<T> rows) {
  using S = Wide<T>;
  __shared__ S parts[kWarps];
  const S size = static_cast<S>(rows.h);
  for (std::int64_t row = blockIdx.x; row < rows.n; row += gridDim.x) {
    const T* x = rows.x + row * rows.h;
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
      y[i] = narrow<T>((widen(x[i]) - mean) * rstd * gain + bias);
    }
    if (threadIdx.x == 0) {
      if (rows.mean != nullptr) rows.mean[row] = mean;
      rows.rstd[row] = rstd;
    }
  }
}

template <typename T>
T* pointer(const Tensor& tensor) {
  return tensor.defined() ? reinterpret_cast<T*>(tensor.raw()) : nullptr;
}

}  // namespace

void execute(const NormForward& call, cudaStream_t stream) {
  const std::int64_t n = call.x.dim(0);
  if (n == 0) return;
  with_floating(call.x.dtype(), [&]<typename T>(std::type_identity<T>) {
    norm_rows<T><<<blocks_for(n, 1), kThreads, 0, stream>>>(
        NormRows<T>{.y = pointer<T>(call.y),
                    .mean = pointer<Wide<T>>(call.mean),
                    .rstd = pointer<Wide<T>>(call.rstd),
                    .x = pointer<T>(call.x),
                    .gain = pointer<T>(call.gain),
                    .bias = pointer<T>(call.bias),
                    .eps = static_cast<Wide<T>>(call.eps),
                    .gain_offset = static_cast<Wide<T>>(call.gain_offset),
                    .n = n,
                    .h = call.x.dim(1)});
  });
  check(cudaGetLastError(), "launch of norm forward");
}

}  // namespace piton::cuda
