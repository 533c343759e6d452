// y = residual + dropout(x + bias), the last step of every residual branch. All parts except x are
// optional. y and residual may be fp32 where x is narrower: a residual stream in fp32. The mask is
// drawn from the global coordinates of each element (base/random/philox.h), head 0, column =
// channel, so it does not depend on the layout, and backward recomputes it.
#pragma once

#include "kernels/call.h"

namespace piton {

struct DropoutAddForward {
  static constexpr std::string_view kName = "dropout add forward";
  Tensor y;         // [n, h]  written; dtype of x, or fp32; may be the memory of x (if of its
                    // dtype) or residual
  Tensor x;         // [n, h]
  Tensor bias;      // [h] or empty; dtype of x
  Tensor residual;  // [n, h] or empty; dtype of y
  Dropout dropout;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("y", self.y, Access::kWrite);
    v("x", self.x, Access::kRead);
    v("bias", self.bias, Access::kRead);
    v("residual", self.residual, Access::kRead);
    v("consumed_samples", self.dropout.rows.consumed_samples, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

// dx = mask * dy / (1 - p); dbias += sum over rows of the unrounded dx. The residual's gradient is
// dy.
struct DropoutAddBackward {
  static constexpr std::string_view kName = "dropout add backward";
  Tensor dx;     // [n, h]  written; dtype of dy, or narrower than fp32; of its dtype, it may be
                 // the same memory as dy
  Tensor dbias;  // [h] or empty, fp32 (fp64), ADDED TO
  Tensor dy;     // [n, h]
  Dropout dropout;

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("dx", self.dx, Access::kWrite);
    v("dbias", self.dbias, Access::kUpdate);
    v("dy", self.dy, Access::kRead);
    v("consumed_samples", self.dropout.rows.consumed_samples, Access::kRead);
  }
  void check() const;
  double flops() const { return 0; }
};

}  // namespace piton
