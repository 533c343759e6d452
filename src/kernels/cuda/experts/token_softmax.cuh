// The scores of a token of its logits over all experts, by a warp. Internal to this folder.
#pragma once

#include <cmath>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace piton::cuda {

template <typename S>
__device__ S warp_sum(S mine) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    mine += __shfl_xor_sync(kAllLanes, mine, distance);
  return mine;
}

template <typename S>
struct TokenSoftmax {
  S largest;
  S sum;
  __device__ S probability(S logit) const { return exp(logit - largest) / sum; }
};

// What a score is, and sums of scores are made of.
template <typename S>
struct TokenScores {
  TokenSoftmax<S> softmax;
  bool sigmoid;

  __device__ S score(S logit) const {
    return sigmoid ? S{1} / (S{1} + exp(-logit)) : softmax.probability(logit);
  }
  // Added to sums of scores.
  __device__ S tiny() const { return sigmoid ? static_cast<S>(1e-20) : S{0}; }
};

// Of logits x[experts]; every lane gets it. `lowest`: -infinity.
template <typename S>
__device__ TokenSoftmax<S> softmax_of(const S* x, int experts, S lowest) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  S largest = lowest;
  for (int e = lane; e < experts; e += kWarp) largest = fmax(largest, x[e]);
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    largest = fmax(largest, __shfl_xor_sync(kAllLanes, largest, distance));
  S sum = 0;
  for (int e = lane; e < experts; e += kWarp) sum += exp(x[e] - largest);
  return {largest, warp_sum(sum)};
}

template <typename S>
__device__ TokenScores<S> scores_of(const S* x, int experts, S lowest, bool sigmoid) {
  if (sigmoid) return {{0, 1}, true};
  return {softmax_of(x, experts, lowest), false};
}

}  // namespace piton::cuda
