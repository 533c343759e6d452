// The gradient of the logits of routing: a warp for each token computes its softmax again.
#include <limits>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/experts/token_softmax.cuh"

namespace piton::cuda {
namespace {

template <typename S>
struct RouteGradient {
  S* dlogits;
  const S* dweights;  // or nullptr
  const S* logits;
  const std::int32_t* choices;
  const std::int32_t* counts;  // or nullptr, as scale
  const S* scale;              // or nullptr: no gradient of the balance
  double factor;               // of scale: balance_factor experts / (n k)
  std::int64_t n;
  int experts;
  int k;
  bool normalized;
  S lowest;  // -infinity

  __device__ S rows_of(int expert) const { return static_cast<S>(counts[expert]); }
};

template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) route_gradient_rows(RouteGradient<S> all) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t token = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (token >= all.n) return;
  const S* x = all.logits + token * all.experts;
  const std::int32_t* choices = all.choices + token * all.k;
  const S* dweights = all.dweights != nullptr ? all.dweights + token * all.k : nullptr;
  const TokenSoftmax<S> softmax = softmax_of(x, all.experts, all.lowest);
  S whole = 1;
  S mean = 0;  // of the gradients of weights
  if (dweights != nullptr) {
    if (all.normalized) {
      whole = 0;
      for (int j = 0; j < all.k; ++j) whole += softmax.probability(x[choices[j]]);
    }
    for (int j = 0; j < all.k; ++j)
      mean += softmax.probability(x[choices[j]]) / whole * dweights[j];
  }
  S factor = 0;
  S mean_rows = 0;
  if (all.scale != nullptr) {
    factor = static_cast<S>(all.factor * static_cast<double>(*all.scale));
    for (int e = lane; e < all.experts; e += kWarp)
      mean_rows += softmax.probability(x[e]) * all.rows_of(e);
    mean_rows = warp_sum(mean_rows);
  }
  for (int e = lane; e < all.experts; e += kWarp) {
    const S p = softmax.probability(x[e]);
    S sum = 0;
    if (dweights != nullptr) {
      if (!all.normalized) sum -= p * mean;
      for (int j = 0; j < all.k; ++j) {
        if (choices[j] == e) sum += p / whole * (all.normalized ? dweights[j] - mean : dweights[j]);
      }
    }
    if (all.scale != nullptr) sum += factor * p * (all.rows_of(e) - mean_rows);
    all.dlogits[token * all.experts + e] = sum;
  }
}

}  // namespace

void execute(const RouteBackward& call, const CallContext& context) {
  const std::int64_t n = call.logits.dim(0);
  if (n == 0) return;
  const std::int64_t experts = call.logits.dim(1);
  with_sums(call.logits.dtype(), [&]<typename S>(std::type_identity<S>) {
    launch(
        "launch of route backward", route_gradient_rows<S>,
        {.blocks = {static_cast<unsigned>((n + kWarps - 1) / kWarps), 1, 1}},
        RouteGradient<S>{.dlogits = pointer<S>(call.dlogits),
                         .dweights = pointer<const S>(call.dweights),
                         .logits = pointer<const S>(call.logits),
                         .choices = pointer<const std::int32_t>(call.choices),
                         .counts = pointer<const std::int32_t>(call.counts),
                         .scale = call.balance_factor != 0 ? pointer<const S>(call.scale) : nullptr,
                         .factor = call.balance_factor * static_cast<double>(experts) /
                                   static_cast<double>(call.choices.elements()),
                         .n = n,
                         .experts = static_cast<int>(experts),
                         .k = static_cast<int>(call.choices.dim(1)),
                         .normalized = call.normalized,
                         .lowest = -std::numeric_limits<S>::infinity()},
        context.stream);
  });
}

}  // namespace piton::cuda
