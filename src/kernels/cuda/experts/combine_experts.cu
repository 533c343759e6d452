// The sum of what experts return, and its gradients: a warp for each row computes both.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/experts/token_softmax.cuh"
#include "kernels/cuda/held_row.cuh"
#include "kernels/cuda/rows.cuh"

namespace piton::cuda {
namespace {

template <typename T>
struct CombinedExperts {
  static constexpr int kVector = kVectorOf<T>;
  using S = Wide<T>;
  T* y;
  const T* rows;
  const std::int32_t* places;
  const S* weights;  // or nullptr
  std::int64_t h;
  int k;

  template <int kCount>
  __device__ void run(std::int64_t token, std::int64_t column) const {
    Numbers<S, kCount> sum{};
    for (int j = 0; j < k; ++j) {
      const std::int64_t place = places[token * k + j];
      if (place < 0) continue;
      const auto row = load_wide<kCount>(rows + place * h + column);
      const S weight = weights != nullptr ? weights[token * k + j] : S{1};
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum.at[i] += weight * row.at[i];
    }
    store_rounded(y + token * h + column, sum);
  }
};

template <typename T>
struct CombineGradient {
  T* drows;
  Wide<T>* dweights;
  const T* dy;
  const T* rows;
  const std::int32_t* places;
  const Wide<T>* weights;
  std::int64_t count;  // n k
  std::int64_t h;
  int k;
  bool vectors;
};

template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) combine_gradient_rows(CombineGradient<T> all) {
  constexpr int kCount = kVectorOf<T>;
  using S = Wide<T>;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t index = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (index >= all.count) return;
  const std::int64_t place = all.places[index];
  if (place < 0) {
    if (lane == 0) all.dweights[index] = 0;
    return;
  }
  const S weight = all.weights[index];
  const T* dy = all.dy + index / all.k * all.h;
  const T* row = all.rows + place * all.h;
  S sum = 0;
  for (std::int64_t c = std::int64_t{lane} * kCount; c < all.h; c += kWarp * kCount) {
    const auto from = load_part<kCount>(dy, c, all.h, all.vectors);
    const auto other = load_part<kCount>(row, c, all.h, all.vectors);
    Numbers<S, kCount> gradient;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      gradient.at[i] = weight * widen(from.at[i]);
      sum += widen(from.at[i]) * widen(other.at[i]);
    }
    store_part(all.drows + place * all.h, c, all.h, all.vectors, gradient);
  }
  sum = warp_sum(sum);
  if (lane == 0) all.dweights[index] = sum;
}

}  // namespace

void execute(const CombineExperts& call, const CallContext& context) {
  with_floating(call.y.dtype(), [&]<typename T>(std::type_identity<T>) {
    using Rows = CombinedExperts<T>;
    launch_rows("launch of combine experts", rows_of(call.y, Rows::kVector, {call.y, call.rows}),
                Rows{.y = pointer<T>(call.y),
                     .rows = pointer<const T>(call.rows),
                     .places = pointer<const std::int32_t>(call.places),
                     .weights = pointer<const Wide<T>>(call.weights),
                     .h = call.y.dim(1),
                     .k = static_cast<int>(call.places.dim(1))},
                context.stream);
  });
}

void execute(const CombineExpertsBackward& call, const CallContext& context) {
  const std::int64_t count = call.places.elements();
  if (count == 0) return;
  with_floating(call.dy.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch(
        "launch of combine experts backward", combine_gradient_rows<T>,
        {.blocks = {static_cast<unsigned>((count + kWarps - 1) / kWarps), 1, 1}},
        CombineGradient<T>{.drows = pointer<T>(call.drows),
                           .dweights = pointer<Wide<T>>(call.dweights),
                           .dy = pointer<const T>(call.dy),
                           .rows = pointer<const T>(call.rows),
                           .places = pointer<const std::int32_t>(call.places),
                           .weights = pointer<const Wide<T>>(call.weights),
                           .count = count,
                           .h = call.dy.dim(1),
                           .k = static_cast<int>(call.places.dim(1)),
                           .vectors = call.dy.dim(1) % kVectorOf<T> == 0 &&
                                      vectors_fit(kVectorOf<T>, {call.dy, call.rows, call.drows})},
        context.stream);
  });
}

}  // namespace piton::cuda
