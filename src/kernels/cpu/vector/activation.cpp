// GELU in its three forms, SiLU, ReLU and its square, plain and gated.
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/rows.h"
#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {
namespace {

struct ActivationValue {
  F y;
  F slope;
};

// 0.5 x (1 + tanh u) = x sigmoid(2 u),  u = sqrt(2/pi) (x + 0.044715 x^3)
struct GeluTanh {
  PITON_INLINE ActivationValue at(F x) {
    const F square = x * x;
    const F c = splat(1.5957691216F);  // 2 sqrt(2/pi)
    const Sigmoid s = sigmoid(c * x * (splat(1.0F) + splat(0.044715F) * square));
    const F du = c * (splat(1.0F) + splat(3 * 0.044715F) * square);
    return {x * s.s, s.s + x * s.s * s.rest * du};
  }
};

struct GeluErf {
  PITON_INLINE ActivationValue at(F x) {
    const F phi = normal_distribution(x);
    return {x * phi, phi + x * normal_density(x)};
  }
};

struct GeluFast {
  PITON_INLINE ActivationValue at(F x) {
    const F c = splat(1.702F);
    const Sigmoid s = sigmoid(c * x);
    return {x * s.s, s.s + c * x * s.s * s.rest};
  }
};

struct Silu {
  PITON_INLINE ActivationValue at(F x) {
    const Sigmoid s = sigmoid(x);
    return {x * s.s, s.s + x * s.s * s.rest};
  }
};

struct Relu {
  PITON_INLINE ActivationValue at(F x) {
    return {x < 0.0F ? splat(0.0F) : x, x > 0.0F ? splat(1.0F) : splat(0.0F)};
  }
};

struct SquaredRelu {
  PITON_INLINE ActivationValue at(F x) {
    const F positive = x < 0.0F ? splat(0.0F) : x;
    return {positive * positive, positive + positive};
  }
};

struct SigmoidGate {
  PITON_INLINE ActivationValue at(F x) {
    const Sigmoid s = sigmoid(x);
    return {s.s, s.s * s.rest};
  }
};

struct Identity {
  PITON_INLINE ActivationValue at(F x) { return {x, splat(1.0F)}; }
};

PITON_INLINE F at_most(F x, F bound) { return x > bound ? bound : x; }

// What a gate is multiplied by, where gates are bounded.
PITON_INLINE F bounded_factor(F up, F bound) {
  const F most = at_most(up, bound);
  return most < -bound ? -bound : most;
}

// `bounded`: gates have ActivationArguments::bound and offset.
template <typename T, typename Kind, bool bounded>
void forward(const ActivationArguments& a, std::int64_t begin, std::int64_t end) {
  const F bound = splat(a.bound);
  const F offset = splat(a.offset);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x.data) + row * a.x.stride;
    const T* up = static_cast<const T*>(a.up.data) + row * a.up.stride;
    T* y = static_cast<T*>(a.y.data) + row * a.y.stride;
    for_vectors(
        a.columns, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          const F gate = load(x + i, count);
          F value = Kind::at(bounded ? at_most(gate, bound) : gate).y;
          if (bounded) {
            value *= bounded_factor(load(up + i, count), bound) + offset;
          } else if (a.up.data != nullptr) {
            value *= load(up + i, count);
          }
          store(y + i, value, count);
        });
  }
}

template <typename T, typename Kind, bool bounded>
void backward(const ActivationArguments& a, std::int64_t begin, std::int64_t end) {
  const F bound = splat(a.bound);
  const F offset = splat(a.offset);
  const F none = splat(0.0F);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x.data) + row * a.x.stride;
    const T* up = static_cast<const T*>(a.up.data) + row * a.up.stride;
    const T* dy = static_cast<const T*>(a.dy.data) + row * a.dy.stride;
    T* dx = static_cast<T*>(a.y.data) + row * a.y.stride;
    T* dup = static_cast<T*>(a.dup.data) + row * a.dup.stride;
    for_vectors(
        a.columns, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          const F gate = load(x + i, count);
          const ActivationValue value = Kind::at(bounded ? at_most(gate, bound) : gate);
          const F g = load(dy + i, count);
          if (bounded) {
            const F given = load(up + i, count);
            const F slope = g * (bounded_factor(given, bound) + offset) * value.slope;
            store(dx + i, gate > bound ? none : slope, count);
            const F other = given > bound ? none : g * value.y;
            store(dup + i, given < -bound ? none : other, count);
          } else if (a.up.data != nullptr) {
            const F scale = load(up + i, count);
            store(dx + i, g * scale * value.slope, count);
            store(dup + i, g * value.y, count);
          } else {
            store(dx + i, g * value.slope, count);
          }
        });
  }
}

template <typename T, typename Kind>
void finish_activated(const FinishArguments& a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const float* sums = a.sums + row * a.sums_stride;
    const T* residual = static_cast<const T*>(a.residual.data) + row * a.residual.stride;
    T* before = static_cast<T*>(a.preactivation.data) + row * a.preactivation.stride;
    T* y = static_cast<T*>(a.y.data) + row * a.y.stride;
    for_vectors(
        a.columns, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          F x = load(sums + i, count);
          if (a.residual.data != nullptr) x += load(residual + i, count);
          if (a.preactivation.data != nullptr) store(before + i, x, count);
          store(y + i, Kind::at(x).y, count);
        });
  }
}

template <typename T>
void finish_added(const FinishArguments& a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const float* sums = a.sums + row * a.sums_stride;
    const T* residual = static_cast<const T*>(a.residual.data) + row * a.residual.stride;
    T* y = static_cast<T*>(a.y.data) + row * a.y.stride;
    for_vectors(
        a.columns, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          store(y + i, load(sums + i, count) + load(residual + i, count), count);
        });
  }
}

template <typename Call>
PITON_INLINE void with_kind(Activation kind, Call call) {
  switch (kind) {
    case Activation::kGeluTanh:
      return call(GeluTanh{});
    case Activation::kGeluErf:
      return call(GeluErf{});
    case Activation::kGeluFast:
      return call(GeluFast{});
    case Activation::kSilu:
      return call(Silu{});
    case Activation::kRelu:
      return call(Relu{});
    case Activation::kSquaredRelu:
      return call(SquaredRelu{});
    case Activation::kSigmoid:
      return call(SigmoidGate{});
    case Activation::kIdentity:
      return call(Identity{});
  }
}

}  // namespace

void activation_forward(const ActivationArguments& a, std::int64_t begin, std::int64_t end) {
  with_type(a.x.type, [&](auto tag) {
    with_kind(a.kind, [&](auto kind) {
      if (a.bounded) return forward<decltype(tag), decltype(kind), true>(a, begin, end);
      forward<decltype(tag), decltype(kind), false>(a, begin, end);
    });
  });
}

void finish(const FinishArguments& a) {
  with_type(a.y.type, [&](auto tag) {
    if (!a.activates) return finish_added<decltype(tag)>(a);
    with_kind(a.kind, [&](auto kind) { finish_activated<decltype(tag), decltype(kind)>(a); });
  });
}

void activation_backward(const ActivationArguments& a, std::int64_t begin, std::int64_t end) {
  with_type(a.x.type, [&](auto tag) {
    with_kind(a.kind, [&](auto kind) {
      if (a.bounded) return backward<decltype(tag), decltype(kind), true>(a, begin, end);
      backward<decltype(tag), decltype(kind), false>(a, begin, end);
    });
  });
}

}  // namespace piton::cpu::PITON_ISA
