// Layer norm (Ba et al. 2016, arXiv:1607.06450) and root-mean-square norm (Zhang & Sennrich 2019,
// arXiv:1910.07467), over the last dim of [n, h].
//
//   layer  y = (x - mean) * r * gain + bias,   r = 1 / sqrt(variance + eps), biased variance
//   RMS    y = x * r * gain,                   r = 1 / sqrt(mean(x^2) + eps)
// With a gain offset, gain + offset replaces gain: offset 1 for gains stored as their difference
// from 1. A call with `mean` is a layer norm, a call without it an RMS norm. Sums run in fp32 (fp64
// for fp64); y is rounded once. x and its gradient may be fp32 where the rest is narrower: a
// residual stream in fp32.
//
// Rows may be parts of longer rows, of an RMS norm over all of them: those that tensor ranks have.
// Then `width` is the length of the whole row, and the sums over it are given: RowSquares and
// NormProducts compute that of a part.
#pragma once

#include "kernels/call.h"

namespace piton {

struct NormForward {
  static constexpr std::string_view kName = "norm forward";
  Tensor y;        // [n, h]  written
  Tensor mean;     // [n]     written, fp32 (fp64 for fp64); empty: RMS norm
  Tensor rstd;     // [n]     written, as mean
  Tensor x;        // [n, h]  dtype of y, or fp32
  Tensor gain;     // [h]     dtype of y
  Tensor bias;     // [h] or empty; dtype of y
  Tensor squares;  // [n] or empty, as rstd: the sum of x^2 of each whole row; only of an RMS norm
  std::int64_t width = 0;  // with squares: elements of a whole row
  double eps = 1e-5;
  double gain_offset = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kWrite);
    v("mean", self.mean, Access::kWrite);
    v("rstd", self.rstd, Access::kWrite);
    v("x", self.x, Access::kRead);
    v("gain", self.gain, Access::kRead);
    v("bias", self.bias, Access::kRead);
    v("squares", self.squares, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

struct NormBackward {
  static constexpr std::string_view kName = "norm backward";
  Tensor dx;         // [n, h]  written; dtype of x
  Tensor dgain;      // [h] or empty, fp32 (fp64), ADDED TO; row order fixed by n
  Tensor dbias;      // [h] or empty, fp32 (fp64), ADDED TO
  Tensor dy;         // [n, h]
  Tensor dresidual;  // [n, h] or empty; dtype of x: added to dx (the gradient of the residual path
                     // around the norm)
  Tensor x;          // [n, h]  dtype of dy, or fp32
  Tensor gain;       // [h]     dtype of dy
  Tensor mean;       // [n] or empty
  Tensor rstd;       // [n]
  Tensor products;   // [n] or empty, as rstd: NormProducts of each whole row; only of an RMS norm
  std::int64_t width = 0;  // with products: elements of a whole row
  double gain_offset = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dx", self.dx, Access::kWrite);
    v("dgain", self.dgain, Access::kUpdate);
    v("dbias", self.dbias, Access::kUpdate);
    v("dy", self.dy, Access::kRead);
    v("dresidual", self.dresidual, Access::kRead);
    v("x", self.x, Access::kRead);
    v("gain", self.gain, Access::kRead);
    v("mean", self.mean, Access::kRead);
    v("rstd", self.rstd, Access::kRead);
    v("products", self.products, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// products = the sum over each row of dy (gain + offset) x rstd, in fp32 (fp64 for fp64): what the
// gradient of an RMS norm needs of a row.
struct NormProducts {
  static constexpr std::string_view kName = "norm products";
  Tensor products;  // [n]     written, fp32 (fp64 for fp64)
  Tensor dy;        // [n, h]
  Tensor x;         // [n, h]  dtype of dy, or fp32
  Tensor gain;      // [h]     dtype of dy
  Tensor rstd;      // [n]
  double gain_offset = 0;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("products", self.products, Access::kWrite);
    v("dy", self.dy, Access::kRead);
    v("x", self.x, Access::kRead);
    v("gain", self.gain, Access::kRead);
    v("rstd", self.rstd, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

}  // namespace piton
