// Checks of dropout with bias and residual.
#include "kernels/dropout.h"

#include "kernels/expect.h"

namespace piton {

void DropoutAddForward::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.floating().contiguous();
  const Shape shape{x.dim(0), x.dim(-1)};
  Operand{kName, "x", x}.shape(shape);
  Operand{kName, "y", y}.floating().shape(shape).contiguous();
  expect_wider(kName, y, x);
  if (bias.defined()) Operand{kName, "bias", bias}.shape({shape[1]}).dtype(x.dtype()).contiguous();
  if (residual.defined()) {
    Operand{kName, "residual", residual}.shape(shape).dtype(y.dtype()).contiguous();
  }
  expect_dropout(kName, dropout);
}

void DropoutAddBackward::check() const {
  expect_one_place(*this);
  Operand{kName, "dy", dy}.floating().contiguous();
  const Shape shape{dy.dim(0), dy.dim(-1)};
  Operand{kName, "dy", dy}.shape(shape);
  Operand{kName, "dx", dx}.floating().shape(shape).contiguous();
  expect_wider(kName, dy, dx);
  if (dbias.defined()) {
    Operand{kName, "dbias", dbias}.shape({shape[1]}).dtype(sum_dtype(dy.dtype())).contiguous();
  }
  expect_dropout(kName, dropout);
}

}  // namespace piton
