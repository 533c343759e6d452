// Checks of copies and sums.
#include "kernels/elementwise.h"

#include "kernels/expect.h"

namespace piton {

void Copy::check() const {
  expect_one_place(*this);
  Operand{kName, "src", src}.given();
  Operand{kName, "dst", dst}.shape(src.shape());
  if (src.dtype() != dst.dtype()) {
    Operand{kName, "src", src}.floating();
    Operand{kName, "dst", dst}.floating();
  }
}

void Add::check() const {
  expect_one_place(*this);
  Operand{kName, "a", a}.floating().contiguous();
  Operand{kName, "b", b}.shape(a.shape()).dtype(a.dtype()).contiguous();
  Operand{kName, "y", y}.shape(a.shape()).dtype(a.dtype()).contiguous();
}

void Scale::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.floating().contiguous();
  Operand{kName, "y", y}.shape(x.shape()).dtype(x.dtype()).contiguous();
}

void SoftCapForward::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.dtype(sum_dtype(x.dtype())).contiguous();
  Operand{kName, "y", y}.shape(x.shape()).dtype(x.dtype()).contiguous();
  PITON_ASSERT(cap > 0, "{}: cap {}", kName, cap);
}

void SoftCapBackward::check() const {
  expect_one_place(*this);
  Operand{kName, "dy", dy}.floating().contiguous();
  Operand{kName, "dx", dx}.shape(dy.shape()).dtype(dy.dtype()).contiguous();
  Operand{kName, "y", y}.shape(dy.shape()).dtype(sum_dtype(dy.dtype())).contiguous();
  PITON_ASSERT(cap > 0, "{}: cap {}", kName, cap);
}

}  // namespace piton
