// Activations and their derivatives in device code (kernels/activation.h). Internal to this folder.
#pragma once

#include <cuda_runtime.h>

#include <limits>

#include "kernels/activation.h"

namespace piton::cuda {

inline constexpr double kRootTwoOverPi = 0.79788456080286535588;  // sqrt(2 / pi)
inline constexpr double kRootHalf = 0.70710678118654752440;       // 1 / sqrt(2)
inline constexpr double kCubic = 0.044715;
inline constexpr double kFast = 1.702;

// (1 + tanh u) / 2 as 1 / (1 + exp(-2 u)): near tanh u = -1 the sum would cancel.
template <typename S>
__device__ S gelu_share(S x) {
  return S(1) / (S(1) + exp(-S(2 * kRootTwoOverPi) * (x + S(kCubic) * x * x * x)));
}

template <typename S>
__device__ S activated(ActivationKind kind, S x) {
  const S one = 1;
  switch (kind) {
    case ActivationKind::kGeluTanh:
      return x * gelu_share(x);
    case ActivationKind::kGeluErf:
      return S(0.5) * x * (one + erf(x * S(kRootHalf)));
    case ActivationKind::kGeluFast:
      return x / (one + exp(-S(kFast) * x));
    case ActivationKind::kSilu:
      return x / (one + exp(-x));
    case ActivationKind::kRelu:
      return x < S(0) ? S(0) : x;
    case ActivationKind::kSquaredRelu:
      return x < S(0) ? S(0) : x * x;
    case ActivationKind::kSigmoid:
      return one / (one + exp(-x));
    case ActivationKind::kIdentity:
      return x;
  }
  return 0;
}

// GateRule, with infinity in place of no bound.
template <typename S>
struct BoundedGate {
  S bound;
  S offset;

  __device__ S gate(S x) const { return x > bound ? bound : x; }
  __device__ S up(S x) const { return (x > bound ? bound : x < -bound ? -bound : x) + offset; }
  __device__ bool passes_gate(S x) const { return !(x > bound); }
  __device__ bool passes_up(S x) const { return !(x > bound || x < -bound); }
};

template <typename S>
__device__ S gated(ActivationKind kind, const BoundedGate<S>& bounds, S gate, S up) {
  return activated(kind, bounds.gate(gate)) * bounds.up(up);
}

template <typename S>
BoundedGate<S> bounded_gate(const GateRule& rule) {
  return {
      .bound = rule.bound == 0 ? std::numeric_limits<S>::infinity() : static_cast<S>(rule.bound),
      .offset = static_cast<S>(rule.offset)};
}

template <typename S>
__device__ S activation_slope(ActivationKind kind, S x) {
  const S one = 1;
  const S half = S(0.5);
  switch (kind) {
    case ActivationKind::kGeluTanh: {
      const S s = gelu_share(x);
      return s + x * s * (one - s) * S(2 * kRootTwoOverPi) * (one + S(3 * kCubic) * x * x);
    }
    case ActivationKind::kGeluErf: {
      const S density = half * S(kRootTwoOverPi) * exp(-half * x * x);
      return half * (one + erf(x * S(kRootHalf))) + x * density;
    }
    case ActivationKind::kGeluFast: {
      const S s = one / (one + exp(-S(kFast) * x));
      return s * (one + S(kFast) * x * (one - s));
    }
    case ActivationKind::kSilu: {
      const S s = one / (one + exp(-x));
      return s * (one + x * (one - s));
    }
    case ActivationKind::kRelu:
      return x > S(0) ? one : S(0);
    case ActivationKind::kSquaredRelu:
      return x < S(0) ? S(0) : x + x;
    case ActivationKind::kSigmoid: {
      const S s = one / (one + exp(-x));
      return s * (one - s);
    }
    case ActivationKind::kIdentity:
      return one;
  }
  return 0;
}

}  // namespace piton::cuda
