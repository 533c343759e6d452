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

void MuonTerms::check() const {
  expect_one_place(*this);
  const Shape square{gram.dim(0), gram.dim(0)};
  Operand{kName, "gram", gram}.shape(square).floating().contiguous();
  Operand{kName, "scaled", scaled}.shape(square).dtype(gram.dtype()).contiguous();
  Operand{kName, "rest", rest}.shape(square).dtype(gram.dtype()).contiguous();
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
