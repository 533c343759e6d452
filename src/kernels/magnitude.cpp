// Checks of calls with magnitudes.
#include "kernels/magnitude.h"

#include "kernels/expect.h"

namespace piton {

void RowSquares::check() const {
  expect_one_place(*this);
  Operand{kName, "rows", rows}.floating().contiguous();
  Operand{kName, "rows", rows}.shape({rows.dim(0), rows.dim(-1)});
  Operand{kName, "squares", squares}
      .shape({rows.dim(0)})
      .dtype(sum_dtype(rows.dtype()))
      .contiguous();
}

void MagnitudeForward::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.floating().rows();
  const std::int64_t f = x.dim(-1);
  Operand{kName, "x", x}.shape({x.dim(0), f});
  Operand{kName, "y", y}.shape(x.shape()).dtype(x.dtype()).rows();
  Operand{kName, "magnitude", magnitude}.shape({f}).floating().contiguous();
  Operand{kName, "squares", squares}.shape({f}).dtype(sum_dtype(x.dtype())).contiguous();
  if (bias.defined()) Operand{kName, "bias", bias}.shape({f}).dtype(magnitude.dtype()).contiguous();
}

void MagnitudeGradient::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.floating().rows();
  const std::int64_t f = x.dim(-1);
  const DType sums = sum_dtype(x.dtype());
  Operand{kName, "x", x}.shape({x.dim(0), f});
  Operand{kName, "dy", dy}.shape(x.shape()).dtype(x.dtype()).rows();
  Operand{kName, "dmagnitude", dmagnitude}.shape({f}).dtype(sums).contiguous();
  Operand{kName, "squares", squares}.shape({f}).dtype(sums).contiguous();
  if (bias.defined()) Operand{kName, "bias", bias}.shape({f}).floating().contiguous();
}

}  // namespace piton
