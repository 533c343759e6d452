// Causal convolution of each channel over the last w rows of a sample, and usually SiLU of it, as
// layers with a state of fixed size have it (Gu & Dao 2023, arXiv:2312.00752, section 3.4):
//
//   z[t, c] = bias[c] + sum over j < w of weight[c, j] x[t - w + 1 + j, c]
//   y[t, c] = z / (1 + exp(-z)), or z
//
// Rows before the first one of a sample are 0, and so are those of another segment. A text that is
// continued has its last w - 1 rows in a state. Sums are fp32 (fp64).
#pragma once

#include "kernels/recurrent/text_rows.h"

namespace piton {

struct ConvolutionForward {
  static constexpr std::string_view kName = "convolution forward";
  Tensor y;                  // [n, c]  written
  Tensor x;                  // [n, c]  rows may be strided
  Tensor weight;             // [c, w]
  Tensor bias;               // [c], or empty: 0
  Tensor segments;           // int32 [n]: documents of a sample; or empty: one
  std::int64_t samples = 1;  // of n / samples rows; ignored with texts
  TextRows texts;
  Tensor state;      // [slots, w - 1, c], type of x, changed; given with texts
  bool silu = true;  // of the sums; else y is the sums

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kWrite);
    v("x", self.x, Access::kRead);
    v("weight", self.weight, Access::kRead);
    v("bias", self.bias, Access::kRead);
    v("segments", self.segments, Access::kRead);
    TextRows::tensors(self.texts, v);
    v("state", self.state, Access::kUpdate);
  }
  void check() const;
  double flops() const { return 2.0 * static_cast<double>(x.dim(0) * weight.elements()); }
};

struct ConvolutionBackward {
  static constexpr std::string_view kName = "convolution backward";
  Tensor dx;        // [n, c]  written; rows may be strided
  Tensor dweight;   // [c, w]  fp32 (fp64), added to; or empty
  Tensor dbias;     // [c]  fp32 (fp64), added to, only with a bias; or empty
  Tensor dy;        // [n, c]
  Tensor x;         // [n, c]  rows may be strided
  Tensor weight;    // [c, w]
  Tensor bias;      // [c], or empty: 0
  Tensor segments;  // int32 [n], or empty
  std::int64_t samples = 1;
  bool silu = true;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dx", self.dx, Access::kWrite);
    v("dweight", self.dweight, Access::kUpdate);
    v("dbias", self.dbias, Access::kUpdate);
    v("dy", self.dy, Access::kRead);
    v("x", self.x, Access::kRead);
    v("weight", self.weight, Access::kRead);
    v("bias", self.bias, Access::kRead);
    v("segments", self.segments, Access::kRead);
  }
  void check() const;
  // The sum again, and both gradients.
  double flops() const { return 6.0 * static_cast<double>(x.dim(0) * weight.elements()); }
};

}  // namespace piton
