// Checks of optimizer updates, with those of CAdam.
#include "kernels/optimizer.h"

#include <utility>

#include "kernels/cadam.h"
#include "kernels/expect.h"

namespace piton {
namespace {

// What the two calls have in common. Returns the number of elements.
template <typename Call>
std::int64_t check_span(const Call& call) {
  expect_one_place(call);
  const std::int64_t n = call.gradient.elements();
  PITON_ASSERT(call.columns > 0 && call.first_column >= 0 && call.first_column < call.columns,
               "{}: column {} of {}", Call::kName, call.first_column, call.columns);
  const std::int64_t rows = span_rows(n, call.columns, call.first_column);
  Operand{Call::kName, "gradient", call.gradient}.shape({n}).dtype(DType::kF32).contiguous();
  Operand{Call::kName, "momentum", call.momentum}.shape({n}).dtype(DType::kF16).contiguous();
  Operand{Call::kName, "scales", call.scales}.shape({rows}).dtype(DType::kF32).contiguous();
  Operand{Call::kName, "maxima", call.maxima}.shape({rows}).dtype(DType::kF32).contiguous();
  Operand{Call::kName, "scalars", call.scalars}
      .shape({kStepScalars})
      .dtype(DType::kF32)
      .contiguous();
  return n;
}

}  // namespace

void AdamwUpdate::check() const {
  expect_one_place(*this);
  Operand{kName, "main", main}.dtype(DType::kF32).contiguous();
  const Shape span{main.elements()};
  Operand{kName, "main", main}.shape(span);
  for (const auto& [name, moment] : {std::pair{"first", first}, std::pair{"second", second}}) {
    PITON_ASSERT(moment.dtype() == DType::kF32 || moment.dtype() == DType::kBF16, "{}: {} is {}",
                 kName, name, to_string(moment));
    Operand{kName, name, moment}.shape(span).contiguous();
  }
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

void SignUpdate::check() const {
  expect_one_place(*this);
  const Shape span{main.elements()};
  Operand{kName, "main", main}.shape(span).dtype(DType::kF32).contiguous();
  Operand{kName, "gradient", gradient}.shape(span).dtype(DType::kF32).contiguous();
  Operand{kName, "scalars", scalars}.shape({kStepScalars}).dtype(DType::kF32).contiguous();
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

void CadamMaxima::check() const { check_span(*this); }

void CadamUpdate::check() const {
  const Shape span{check_span(*this)};
  Operand{kName, "main", main}.shape(span).dtype(DType::kF32).contiguous();
  if (copy.defined()) Operand{kName, "copy", copy}.shape(span).floating().contiguous();
}

}  // namespace piton
