// GELU in its three forms, SiLU, ReLU and its square, plain and gated.
#include "kernels/activation.h"

#include <cmath>
#include <numbers>

#include "kernels/reference/activation.h"
#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {
namespace {

constexpr double kRootTwoOverPi = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kCubic = 0.044715;
constexpr double kFast = 1.702;

double value(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x)));
    case ActivationKind::kGeluErf:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case ActivationKind::kGeluFast:
      return x / (1 + std::exp(-kFast * x));
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kRelu:
      return x < 0 ? 0 : x;  // NaN stays
    case ActivationKind::kSquaredRelu:
      return x < 0 ? 0 : x * x;
    case ActivationKind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case ActivationKind::kIdentity:
      return x;
  }
  return 0;
}

double slope(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kGeluTanh: {
      // (1 + tanh u) / 2 without the cancellation near tanh u = -1.
      const double share = 1 / (1 + std::exp(-2 * kRootTwoOverPi * (x + kCubic * x * x * x)));
      return share + 2 * x * share * (1 - share) * kRootTwoOverPi * (1 + 3 * kCubic * x * x);
    }
    case ActivationKind::kGeluErf: {
      // The normal density: 1 / sqrt(2 pi) is half of sqrt(2 / pi).
      const double density = 0.5 * kRootTwoOverPi * std::exp(-0.5 * x * x);
      return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)) + x * density;
    }
    case ActivationKind::kGeluFast: {
      const double s = 1 / (1 + std::exp(-kFast * x));
      return s * (1 + kFast * x * (1 - s));
    }
    case ActivationKind::kSilu: {
      const double s = 1 / (1 + std::exp(-x));
      return s * (1 + x * (1 - s));
    }
    case ActivationKind::kRelu:
      return x > 0 ? 1 : 0;
    case ActivationKind::kSquaredRelu:
      return x < 0 ? 0 : 2 * x;
    case ActivationKind::kSigmoid: {
      const double s = 1 / (1 + std::exp(-x));
      return s * (1 - s);
    }
    case ActivationKind::kIdentity:
      return 1;
  }
  return 0;
}

// What a gate and its factor are within the bound, and whether they are beyond it.
struct Bounded {
  double gate, up;
  bool gate_beyond, up_beyond;
};

Bounded bounded(const GateRule& rule, double gate, double up) {
  const double c = rule.bound == 0 ? kInfinity : rule.bound;
  return {.gate = gate > c ? c : gate,
          .up = (up > c    ? c
                 : up < -c ? -c
                           : up) +
                rule.offset,
          .gate_beyond = gate > c,
          .up_beyond = up > c || up < -c};
}

}  // namespace

double activated(ActivationKind kind, double x) { return value(kind, x); }

void execute(const ActivationForward& call) {
  const Values x = Values::read(call.x);
  const Values up = Values::read(call.up);
  const std::int64_t rows = rows_used(call.used, call.x.dim(0));
  Values y = call.used.defined() ? Values::read(call.y) : Values(call.y.shape());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < call.x.dim(1); ++i) {
      if (up.given()) {
        const Bounded both = bounded(call.gate, x(row, i), up(row, i));
        y(row, i) = value(call.kind, both.gate) * both.up;
      } else {
        y(row, i) = value(call.kind, x(row, i));
      }
    }
  }
  y.write(call.y);
}

void execute(const ActivationBackward& call) {
  const Values dy = Values::read(call.dy);
  const Values x = Values::read(call.x);
  const Values up = Values::read(call.up);
  const std::int64_t rows = rows_used(call.used, call.x.dim(0));
  const bool all = !call.used.defined();
  Values dx = all ? Values(call.dx.shape()) : Values::read(call.dx);
  Values dup = all || !call.dup.defined() ? Values(call.dx.shape()) : Values::read(call.dup);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < call.x.dim(1); ++i) {
      if (up.given()) {
        const Bounded both = bounded(call.gate, x(row, i), up(row, i));
        dx(row, i) = both.gate_beyond ? 0 : dy(row, i) * slope(call.kind, both.gate) * both.up;
        dup(row, i) = both.up_beyond ? 0 : dy(row, i) * value(call.kind, both.gate);
      } else {
        dx(row, i) = dy(row, i) * slope(call.kind, x(row, i));
      }
    }
  }
  dx.write(call.dx);
  if (call.dup.defined()) dup.write(call.dup);
}

}  // namespace piton::reference
