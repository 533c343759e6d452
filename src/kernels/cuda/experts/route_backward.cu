// The gradient of the logits of routing: a warp for each token computes its scores again.
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
  bool sigmoid;
  S weight_factor;
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
  const TokenScores<S> scores = scores_of(x, all.experts, all.lowest, all.sigmoid);
  const bool spreads = !all.sigmoid && !all.normalized;  // a weight depends on all logits
  S whole = 1;
  S mean = 0;  // of the gradients of weights
  if (dweights != nullptr) {
    if (all.normalized) {
      whole = scores.tiny();
      for (int j = 0; j < all.k; ++j) whole += scores.score(x[choices[j]]);
    }
    if (all.normalized || spreads) {
      for (int j = 0; j < all.k; ++j) mean += scores.score(x[choices[j]]) / whole * dweights[j];
    }
  }
  S factor = 0;
  S mean_rows = 0;
  S sum_of_scores = 1;
  if (all.scale != nullptr) {
    factor = static_cast<S>(all.factor * static_cast<double>(*all.scale));
    if (all.sigmoid) {
      S mine = 0;
      for (int e = lane; e < all.experts; e += kWarp) mine += scores.score(x[e]);
      sum_of_scores = warp_sum(mine) + scores.tiny();
    }
    for (int e = lane; e < all.experts; e += kWarp)
      mean_rows += scores.score(x[e]) / sum_of_scores * all.rows_of(e);
    mean_rows = warp_sum(mean_rows);
  }
  for (int e = lane; e < all.experts; e += kWarp) {
    const S score = scores.score(x[e]);
    const S slope = all.sigmoid ? score * (S{1} - score) : score;
    S sum = 0;
    if (dweights != nullptr) {
      if (spreads) sum -= slope * all.weight_factor * mean;
      for (int j = 0; j < all.k; ++j) {
        if (choices[j] == e)
          sum += slope / whole * all.weight_factor * (spreads ? dweights[j] : dweights[j] - mean);
      }
    }
    if (all.scale != nullptr) sum += factor * slope * (all.rows_of(e) - mean_rows) / sum_of_scores;
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
                         .sigmoid = call.score == ScoreKind::kSigmoid,
                         .weight_factor = static_cast<S>(call.factor),
                         .lowest = -std::numeric_limits<S>::infinity()},
        context.stream);
  });
}

}  // namespace piton::cuda
