// Copies with conversion, sums and fills, over whole tensors.
#pragma once

#include "kernels/call.h"

namespace piton {

// dst = src, converted; same shape, any strides. To 16 bits: nearest even.
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

}  // namespace piton
