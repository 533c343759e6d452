// Pointwise activations on [n, f], computed in fp32 (fp64 for fp64).
//
//   gelu tanh  0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))      (Hendrycks & Gimpel 2016)
//   gelu erf   0.5 x (1 + erf(x / sqrt(2)))
//   gelu fast  x / (1 + exp(-1.702 x))                               (the same); differs from gelu
//              erf by at most 0.021
//   silu       x / (1 + exp(-x))
//   relu       max(x, 0), with slope 0 at 0
//   sigmoid    1 / (1 + exp(-x)): for gates
//   identity   x: for gates that are factors as they are
//   squared    max(x, 0)^2                                           (So et al. 2021,
//   relu       arXiv:2109.08668)
//   gated      y = act(gate) * up: GeGLU, SwiGLU                     (Shazeer 2020,
//              arXiv:2002.05202)
//   bounded    y = act(min(gate, c)) * (min(max(up, -c), c) + o)     gpt-oss: gelu fast, c 7, o 1
#pragma once

#include "kernels/call.h"

namespace piton {

enum class ActivationKind : std::uint8_t {
  kGeluTanh,
  kGeluErf,
  kGeluFast,
  kSilu,
  kRelu,
  kSquaredRelu,
  kSigmoid,
  kIdentity
};

// How a gated activation reads its two inputs. What is beyond the bound has slope 0.
struct GateRule {
  double bound = 0;   // c; 0: none
  double offset = 0;  // o

  bool given() const { return bound != 0 || offset != 0; }
  bool operator==(const GateRule&) const = default;
};

struct ActivationForward {
  static constexpr std::string_view kName = "activation forward";
  Tensor y;   // [n, f]  written
  Tensor x;   // [n, f]  rows may be strided; the call is gated if `up` is given
  Tensor up;  // [n, f] or empty; rows may be strided
  ActivationKind kind = ActivationKind::kGeluTanh;
  GateRule gate = {};  // only with `up`
  Tensor used = {};    // int32 [1] or empty (rows_used())

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kWrite);
    v("x", self.x, Access::kRead);
    v("up", self.up, Access::kRead);
    v("used", self.used, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

struct ActivationBackward {
  static constexpr std::string_view kName = "activation backward";
  Tensor dx;   // [n, f]  written; rows may be strided
  Tensor dup;  // [n, f] or empty: given exactly if `up` is
  Tensor dy;   // [n, f]
  Tensor x;    // [n, f]  rows may be strided
  Tensor up;   // [n, f] or empty
  ActivationKind kind = ActivationKind::kGeluTanh;
  GateRule gate = {};  // only with `up`
  Tensor used = {};    // int32 [1] or empty (rows_used())

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dx", self.dx, Access::kWrite);
    v("dup", self.dup, Access::kWrite);
    v("dy", self.dy, Access::kRead);
    v("x", self.x, Access::kRead);
    v("up", self.up, Access::kRead);
    v("used", self.used, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

}  // namespace piton
