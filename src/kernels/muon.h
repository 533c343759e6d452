// What Muon needs in addition to linear maps (Jordan et al. 2024,
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

// y = factor left right^T + addend_factor addend + diagonal I, where y is symmetric but for
// rounding: left and right are the same, or symmetric matrices that commute. The lower triangle is
// computed, and each element rounded once; the upper triangle is its mirror.
struct SymmetricProduct {
  static constexpr std::string_view kName = "symmetric product";
  Tensor y;       // [n, n]  written; floating
  Tensor left;    // [n, k], or [k, n] if transposed; dtype of y
  Tensor right;   // as left
  Tensor addend;  // [n, n] or empty; dtype of y
  double factor = 1;
  double addend_factor = 1;
  double diagonal = 0;
  bool transposed = false;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kWrite);
    v("left", self.left, Access::kRead);
    v("right", self.right, Access::kRead);
    v("addend", self.addend, Access::kRead);
  }
  std::int64_t depth() const { return left.dim(transposed ? 0 : 1); }  // k
  bool has_terms() const { return factor != 1 || addend.defined() || diagonal != 0; }
  void check() const;
  double flops() const;  // of the lower triangle
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
