// Elementwise operations: copies with conversion, sums, multiples, soft caps, rows with a gate, and
// heads of which a part is the same for all.
#pragma once

#include "kernels/call.h"

namespace piton {

// dst = src, converted; same shape, any strides. Rounds to nearest even.
struct Copy {
  static constexpr std::string_view kName = "copy";
  Tensor dst;
  Tensor src;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dst", self.dst, Access::kWrite);
    v("src", self.src, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// y = a + b, rounded once; same shape and dtype, contiguous; y may be a or b.
struct Add {
  static constexpr std::string_view kName = "add";
  Tensor y;
  Tensor a;
  Tensor b;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kWrite);
    v("a", self.a, Access::kRead);
    v("b", self.b, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// y = factor x, rounded once; same shape and dtype, contiguous; y may be x.
struct Scale {
  static constexpr std::string_view kName = "scale";
  Tensor y;
  Tensor x;
  double factor = 1;
  Tensor used = {};  // int32 [1] or empty (rows_used()); with it x is [n, f]

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kWrite);
    v("x", self.x, Access::kRead);
    v("used", self.used, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// y = cap tanh(x / cap); same shape, fp32 or fp64, contiguous; y may be x.
struct SoftCapForward {
  static constexpr std::string_view kName = "soft cap forward";
  Tensor y;
  Tensor x;
  double cap = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kWrite);
    v("x", self.x, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// dx = dy (1 - (y / cap)^2); same shape, contiguous; dx may be dy.
struct SoftCapBackward {
  static constexpr std::string_view kName = "soft cap backward";
  Tensor dx;
  Tensor dy;  // dtype of dx
  Tensor y;   // fp32 (fp64 for fp64): the result of forward
  double cap = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dx", self.dx, Access::kWrite);
    v("dy", self.dy, Access::kRead);
    v("y", self.y, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// y[t] = a[t] + sigmoid(gate[t]) x[t], rounded once. Contiguous; y may be a.
struct GatedSumForward {
  static constexpr std::string_view kName = "gated sum forward";
  Tensor y;     // [n, h]  written
  Tensor a;     // [n, h]  dtype of y
  Tensor x;     // [n, h]  dtype of y
  Tensor gate;  // [n, 1]  fp32 (fp64 for fp64)

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kWrite);
    v("a", self.a, Access::kRead);
    v("x", self.x, Access::kRead);
    v("gate", self.gate, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// dx[t] = s dy[t];  dgate[t] = s (1 - s) dy[t] . x[t], for s = sigmoid(gate[t]). The gradient of a
// is dy. Contiguous.
struct GatedSumBackward {
  static constexpr std::string_view kName = "gated sum backward";
  Tensor dx;     // [n, h]  written
  Tensor dgate;  // [n, 1]  written; fp32 (fp64 for fp64)
  Tensor dy;     // [n, h]  dtype of dx
  Tensor x;      // [n, h]  dtype of dx
  Tensor gate;   // [n, 1]  dtype of dgate

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dx", self.dx, Access::kWrite);
    v("dgate", self.dgate, Access::kWrite);
    v("dy", self.dy, Access::kRead);
    v("x", self.x, Access::kRead);
    v("gate", self.gate, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// y[t, head] = [own[t, head] | shared[t] | 0]: heads with a part that all have in common, and zeros
// up to their width.
struct JoinHeads {
  static constexpr std::string_view kName = "join heads";
  Tensor y;       // [n, a, d]   written
  Tensor own;     // [n, a, c]   as all three: the last dim contiguous, the others any strides
  Tensor shared;  // [n, r], c + r <= d; or empty: r = 0

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kWrite);
    v("own", self.own, Access::kRead);
    v("shared", self.shared, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// The gradients of JoinHeads, y of y: own[t, head] = the first c channels of y[t, head], shared[t]
// = the sum over heads of the r channels after them.
struct SplitHeads {
  static constexpr std::string_view kName = "split heads";
  Tensor own;     // [n, a, c]   written
  Tensor shared;  // [n, r]      written, or empty; sums are fp32 (fp64)
  Tensor y;       // [n, a, d]

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("own", self.own, Access::kWrite);
    v("shared", self.shared, Access::kWrite);
    v("y", self.y, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

}  // namespace piton
