// Checks of optimizer updates.
#include "kernels/optimizer.h"

#include "kernels/expect.h"

namespace piton {

void AdamwUpdate::check() const {
  expect_one_place(*this);
  Operand{kName, "main", main}.dtype(DType::kF32).contiguous();
  const Shape span{main.elements()};
  Operand{kName, "main", main}.shape(span);
  Operand{kName, "first", first}.shape(span).dtype(DType::kF32).contiguous();
  Operand{kName, "second", second}.shape(span).dtype(DType::kF32).contiguous();
  Operand{kName, "gradient", gradient}.shape(span).dtype(DType::kF32).contiguous();
  Operand{kName, "scalars", scalars}.shape({kStepScalars}).dtype(DType::kF32).contiguous();
  if (copy.defined()) Operand{kName, "copy", copy}.shape(span).floating().contiguous();
}

void SgdUpdate::check() const {
  expect_one_place(*this);
  Operand{kName, "main", main}.dtype(DType::kF32).contiguous();
  const Shape span{main.elements()};
  Operand{kName, "main", main}.shape(span);
  if (buffer.defined())
    Operand{kName, "buffer", buffer}.shape(span).dtype(DType::kF32).contiguous();
  Operand{kName, "gradient", gradient}.shape(span).dtype(DType::kF32).contiguous();
  Operand{kName, "scalars", scalars}.shape({kStepScalars}).dtype(DType::kF32).contiguous();
  if (copy.defined()) Operand{kName, "copy", copy}.shape(span).floating().contiguous();
}

void MovingAverage::check() const {
  expect_one_place(*this);
  const Shape span{average.elements()};
  Operand{kName, "average", average}.shape(span).dtype(DType::kF32).contiguous();
  Operand{kName, "main", main}.shape(span).dtype(DType::kF32).contiguous();
  Operand{kName, "scalars", scalars}.shape({kStepScalars}).dtype(DType::kF32).contiguous();
}

void SquareSums::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.dtype(DType::kF32).contiguous();
  PITON_ASSERT(x.ndim() == 1 && block > 0, "{}: x is {}, blocks of {}", kName, to_string(x), block);
  Operand{kName, "sums", sums}
      .shape({(x.dim(0) + block - 1) / block})
      .dtype(DType::kF64)
      .contiguous();
}

void BeginUpdate::check() const {
  expect_one_place(*this);
  Operand{kName, "scalars", scalars}.shape({kStepScalars}).dtype(DType::kF32).contiguous();
  Operand{kName, "counts", counts}.shape({kUpdateCounts}).dtype(DType::kF64).contiguous();
  Operand{kName, "sums", sums}.shape({sums.elements()}).dtype(DType::kF64).contiguous();
  if (!spikes.history.defined()) return;
  const std::int64_t size = spikes.history.elements();
  PITON_ASSERT(size >= kSpikeRings + 4 && (size - kSpikeRings) % 2 == 0, "{}: a history of {}",
               kName, size);
  Operand{kName, "history", spikes.history}.shape({size}).dtype(DType::kF64).contiguous();
}

}  // namespace piton
