// Checks of norms.
#include "kernels/norm.h"

#include <utility>

#include "kernels/expect.h"

namespace piton {
namespace {

// Sums over whole rows of an RMS norm, of which x has a part.
void expect_whole(std::string_view name, const std::pair<const char*, Tensor>& sums,
                  const Tensor& mean, const Tensor& x, std::int64_t width) {
  if (!sums.second.defined()) return;
  Operand{name, sums.first, sums.second}.shape({x.dim(0)}).dtype(sum_dtype(x.dtype())).contiguous();
  PITON_ASSERT(!mean.defined(), "{}: {} of a layer norm", name, sums.first);
  PITON_ASSERT(width >= x.dim(1), "{}: rows of {} in rows of {}", name, x.dim(1), width);
}

}  // namespace

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
  expect_whole(kName, {"squares", squares}, mean, x, width);
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
  expect_whole(kName, {"products", products}, mean, x, width);
}

void NormProducts::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.floating().contiguous();
  const std::int64_t n = x.dim(0);
  const std::int64_t h = x.dim(-1);
  const DType sums = sum_dtype(x.dtype());
  Operand{kName, "x", x}.shape({n, h});
  Operand{kName, "products", products}.shape({n}).dtype(sums).contiguous();
  Operand{kName, "dy", dy}.floating().shape({n, h}).contiguous();
  expect_wider(kName, x, dy);
  Operand{kName, "gain", gain}.shape({h}).dtype(dy.dtype()).contiguous();
  Operand{kName, "rstd", rstd}.shape({n}).dtype(sums).contiguous();
}

}  // namespace piton
