// What Muon needs beside products of matrices (Jordan et al. 2024,
// kellerjordan.github.io/posts/muon; torch.optim.Muon): an update is the momentum of the gradient,
// made nearly orthogonal by a few Newton-Schulz iterations (optim/muon.h).
//
//   g = gradient * gradient_scale
//   buffer = momentum buffer + (1 - momentum) g
//   direction = nesterov ? momentum buffer + (1 - momentum) g : buffer
//   x = direction / max(|direction|, eps)                        |.|: root of the sum of squares
//   repeat:  gram = x x^T;  x = (a I + b gram + c gram^2) x
//   main = main * (1 - lr * decay) - lr * lr_multiplier * x
#pragma once

#include "kernels/optimizer.h"

namespace piton {

// Where kApply is 0, the buffer stays and the direction is 0.
struct MuonMomentum {
  static constexpr std::string_view kName = "muon momentum";
  Tensor direction;  // fp32 [n]  written
  Tensor buffer;     // fp32 [n]  updated
  Tensor gradient;   // fp32 [n]
  Tensor scalars;    // fp32 [kStepScalars]
  double momentum = 0.9;
  bool nesterov = true;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("direction", self.direction, Access::kWrite);
    v("buffer", self.buffer, Access::kUpdate);
    v("gradient", self.gradient, Access::kRead);
    v("scalars", self.scalars, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

struct MuonNormalize {
  static constexpr std::string_view kName = "muon normalize";
  Tensor x;          // [n]       written; floating
  Tensor direction;  // fp32 [n]
  Tensor sums;       // fp64 [m]  of squares of the direction; they are added in order
  double eps = 1e-7;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("x", self.x, Access::kWrite);
    v("direction", self.direction, Access::kRead);
    v("sums", self.sums, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// The two sides of  a I + b gram + c gram^2 = rest + scaled gram.
struct MuonTerms {
  static constexpr std::string_view kName = "muon terms";
  Tensor scaled;  // [n, n]  written: c gram
  Tensor rest;    // [n, n]  written: a I + b gram; dtype of gram
  Tensor gram;    // [n, n]  floating
  double a = 0;
  double b = 0;
  double c = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("scaled", self.scaled, Access::kWrite);
    v("rest", self.rest, Access::kWrite);
    v("gram", self.gram, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

struct MuonUpdate {
  static constexpr std::string_view kName = "muon update";
  Tensor main;  // fp32 [n]  updated
  Tensor
      copy;  // [n] or empty: main rounded to the weights' dtype, written (kept where kApply is 0)
  Tensor direction;  // [n]  floating
  Tensor scalars;    // fp32 [kStepScalars]
  double decay_multiplier = 0;
  double lr_multiplier = 1;  // of the direction alone

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("main", self.main, Access::kUpdate);
    v("copy", self.copy, Access::kUpdate);
    v("direction", self.direction, Access::kRead);
    v("scalars", self.scalars, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

}  // namespace piton
