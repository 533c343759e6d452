// Checks of norms.
#include "kernels/norm.h"

#include "kernels/expect.h"

namespace piton {

void NormForward::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.floating().contiguous();
  const std::int64_t n = x.dim(0);
  const std::int64_t h = x.dim(-1);
  const DType sums = sum_dtype(x.dtype());
  Operand{kName, "x", x}.shape({n, h});
  Operand{kName, "y", y}.floating().shape({n, h}).contiguous();
  expect_wider(kName, x, y);
  if (mean.defined()) Operand{kName, "mean", mean}.shape({n}).dtype(sums).contiguous();
  Operand{kName, "rstd", rstd}.shape({n}).dtype(sums).contiguous();
  Operand{kName, "gain", gain}.shape({h}).dtype(y.dtype()).contiguous();
  if (bias.defined()) Operand{kName, "bias", bias}.shape({h}).dtype(y.dtype()).contiguous();
  PITON_ASSERT(eps >= 0, "{}: eps {}", kName, eps);
}

void NormBackward::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.floating().contiguous();
  const std::int64_t n = x.dim(0);
  const std::int64_t h = x.dim(-1);
  const DType sums = sum_dtype(x.dtype());
  Operand{kName, "x", x}.shape({n, h});
  Operand{kName, "dx", dx}.shape({n, h}).dtype(x.dtype()).contiguous();
  Operand{kName, "dy", dy}.floating().shape({n, h}).contiguous();
  expect_wider(kName, x, dy);
  if (dgain.defined()) Operand{kName, "dgain", dgain}.shape({h}).dtype(sums).contiguous();
  if (dbias.defined()) Operand{kName, "dbias", dbias}.shape({h}).dtype(sums).contiguous();
  if (dresidual.defined()) {
    Operand{kName, "dresidual", dresidual}.shape({n, h}).dtype(x.dtype()).contiguous();
  }
  Operand{kName, "gain", gain}.shape({h}).dtype(dy.dtype()).contiguous();
  if (mean.defined()) Operand{kName, "mean", mean}.shape({n}).dtype(sums).contiguous();
  Operand{kName, "rstd", rstd}.shape({n}).dtype(sums).contiguous();
}

}  // namespace piton
