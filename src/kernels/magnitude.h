// The columns of a product at the lengths that magnitudes give them (DoRA, Liu et al. 2024,
// arXiv:2402.09353):
//
//   y_j = (x_j - bias_j) magnitude_j / sqrt(squares_j) + bias_j
//
// squares_j is the square of the length of row j of the weight that computed column j. It counts as
// a constant (section 4.3 of the paper), so dx is the same product of dy without a bias. A column
// of which squares_j is 0 is bias_j.
#pragma once

#include "kernels/call.h"

namespace piton {

// squares_j = the sum over row j of rows^2. Sums run in fp32 or wider (fp64 for fp64).
struct RowSquares {
  static constexpr std::string_view kName = "row squares";
  Tensor squares;  // [f]     written, fp32 (fp64)
  Tensor rows;     // [f, h]  contiguous

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("squares", self.squares, Access::kWrite);
    v("rows", self.rows, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

struct MagnitudeForward {
  static constexpr std::string_view kName = "magnitude forward";
  Tensor y;          // [n, f]  written; dtype of x; rows may be strided; may be x
  Tensor x;          // [n, f]  rows may be strided
  Tensor magnitude;  // [f]
  Tensor squares;    // [f]     fp32 (fp64)
  Tensor bias;       // [f] or empty; dtype of magnitude

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kWrite);
    v("x", self.x, Access::kRead);
    v("magnitude", self.magnitude, Access::kRead);
    v("squares", self.squares, Access::kRead);
    v("bias", self.bias, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// dmagnitude_j += the sum over rows of dy_j (x_j - bias_j) / sqrt(squares_j). Its order depends
// only on n.
struct MagnitudeGradient {
  static constexpr std::string_view kName = "magnitude gradient";
  Tensor dmagnitude;  // [f]     fp32 (fp64), ADDED TO
  Tensor dy;          // [n, f]  rows may be strided
  Tensor x;           // [n, f]  as dy: the input of forward
  Tensor squares;     // [f]
  Tensor bias;        // [f] or empty

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dmagnitude", self.dmagnitude, Access::kUpdate);
    v("dy", self.dy, Access::kRead);
    v("x", self.x, Access::kRead);
    v("squares", self.squares, Access::kRead);
    v("bias", self.bias, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

}  // namespace piton
