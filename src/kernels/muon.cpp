// Checks of Muon's calls.
#include "kernels/muon.h"

#include "kernels/expect.h"

namespace piton {

void MuonMomentum::check() const {
  expect_one_place(*this);
  const Shape span{direction.elements()};
  Operand{kName, "direction", direction}.shape(span).dtype(DType::kF32).contiguous();
  Operand{kName, "buffer", buffer}.shape(span).dtype(DType::kF32).contiguous();
  Operand{kName, "gradient", gradient}.shape(span).dtype(DType::kF32).contiguous();
  Operand{kName, "scalars", scalars}.shape({kStepScalars}).dtype(DType::kF32).contiguous();
}

void MuonNormalize::check() const {
  expect_one_place(*this);
  const Shape span{direction.elements()};
  Operand{kName, "direction", direction}.shape(span).dtype(DType::kF32).contiguous();
  Operand{kName, "x", x}.shape(span).floating().contiguous();
  Operand{kName, "sums", sums}.shape({sums.elements()}).dtype(DType::kF64).contiguous();
}

void SymmetricProduct::check() const {
  expect_one_place(*this);
  Operand{kName, "left", left}.rows().floating();
  const std::int64_t n = left.dim(transposed ? 1 : 0);
  Operand{kName, "right", right}.shape(left.shape()).dtype(left.dtype()).rows();
  Operand{kName, "y", y}.shape({n, n}).dtype(left.dtype()).rows();
  if (addend.defined()) {
    Operand{kName, "addend", addend}.shape({n, n}).dtype(left.dtype()).rows();
  }
}

double SymmetricProduct::flops() const {
  const auto n = static_cast<double>(y.dim(0));
  return n * (n + 1) * static_cast<double>(depth());
}

void MuonUpdate::check() const {
  expect_one_place(*this);
  const Shape span{main.elements()};
  Operand{kName, "main", main}.shape(span).dtype(DType::kF32).contiguous();
  Operand{kName, "direction", direction}.shape(span).floating().contiguous();
  Operand{kName, "scalars", scalars}.shape({kStepScalars}).dtype(DType::kF32).contiguous();
  if (copy.defined()) Operand{kName, "copy", copy}.shape(span).floating().contiguous();
}

}  // namespace piton
