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

}  // namespace piton
