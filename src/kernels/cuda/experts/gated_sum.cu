// The sum of rows and of others with a gate, and its gradients: a warp for each row of these.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/experts/token_softmax.cuh"
#include "kernels/cuda/held_row.cuh"
#include "kernels/cuda/rows.cuh"

namespace piton::cuda {
namespace {

template <typename S>
__device__ S sigmoid(S x) {
  return S{1} / (S{1} + exp(-x));
}

template <typename T>
struct GatedSum {
  static constexpr int kVector = kVectorOf<T>;
  T* y;
  const T* a;
  const T* x;
  const Wide<T>* gate;
  std::int64_t h;

  template <int kCount>
  __device__ void run(std::int64_t token, std::int64_t column) const {
    const std::int64_t at = token * h + column;
    auto sum = load_wide<kCount>(a + at);
    const auto term = load_wide<kCount>(x + at);
    const Wide<T> share = sigmoid(gate[token]);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum.at[i] += share * term.at[i];
    store_rounded(y + at, sum);
  }
};

template <typename T>
struct GatedSumGradient {
  T* dx;
  Wide<T>* dgate;
  const T* dy;
  const T* x;
  const Wide<T>* gate;
  std::int64_t n;
  std::int64_t h;
  bool vectors;
};

template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) gated_sum_gradient(GatedSumGradient<T> all) {
  constexpr int kCount = kVectorOf<T>;
  using S = Wide<T>;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t token = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (token >= all.n) return;
  const S share = sigmoid(all.gate[token]);
  const std::int64_t row = token * all.h;
  S sum = 0;
  for (std::int64_t c = std::int64_t{lane} * kCount; c < all.h; c += kWarp * kCount) {
    const auto from = load_part<kCount>(all.dy + row, c, all.h, all.vectors);
    const auto other = load_part<kCount>(all.x + row, c, all.h, all.vectors);
    Numbers<S, kCount> gradient;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      gradient.at[i] = share * widen(from.at[i]);
      sum += widen(from.at[i]) * widen(other.at[i]);
    }
    store_part(all.dx + row, c, all.h, all.vectors, gradient);
  }
  sum = warp_sum(sum);
  if (lane == 0) all.dgate[token] = share * (S{1} - share) * sum;
}

}  // namespace

void execute(const GatedSumForward& call, const CallContext& context) {
  with_floating(call.y.dtype(), [&]<typename T>(std::type_identity<T>) {
    using Rows = GatedSum<T>;
    launch_rows("launch of gated sum forward",
                rows_of(call.y, Rows::kVector, {call.y, call.a, call.x}),
                Rows{.y = pointer<T>(call.y),
                     .a = pointer<const T>(call.a),
                     .x = pointer<const T>(call.x),
                     .gate = pointer<const Wide<T>>(call.gate),
                     .h = call.y.dim(1)},
                context.stream);
  });
}

void execute(const GatedSumBackward& call, const CallContext& context) {
  const std::int64_t n = call.dx.dim(0);
  if (n == 0) return;
  with_floating(call.dx.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch("launch of gated sum backward", gated_sum_gradient<T>,
           {.blocks = {static_cast<unsigned>((n + kWarps - 1) / kWarps), 1, 1}},
           GatedSumGradient<T>{.dx = pointer<T>(call.dx),
                               .dgate = pointer<Wide<T>>(call.dgate),
                               .dy = pointer<const T>(call.dy),
                               .x = pointer<const T>(call.x),
                               .gate = pointer<const Wide<T>>(call.gate),
                               .n = n,
                               .h = call.dx.dim(1),
                               .vectors = call.dx.dim(1) % kVectorOf<T> == 0 &&
                                          vectors_fit(kVectorOf<T>, {call.dy, call.x, call.dx})},
           context.stream);
  });
}

}  // namespace piton::cuda
