// Checks of CAdam's calls.
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

void CadamMaxima::check() const { check_span(*this); }

void CadamUpdate::check() const {
  const Shape span{check_span(*this)};
  Operand{kName, "main", main}.shape(span).dtype(DType::kF32).contiguous();
  if (copy.defined()) Operand{kName, "copy", copy}.shape(span).floating().contiguous();
}

}  // namespace piton
