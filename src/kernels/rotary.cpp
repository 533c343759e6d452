// Checks of rotary embedding.
#include "kernels/rotary.h"

#include "kernels/expect.h"

namespace piton {

void Rotary::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.floating().rows();
  PITON_ASSERT(x.ndim() == 3 && x.dim(2) % 2 == 0, "{}: x is {}, wanted [n, heads, even]", kName,
               to_string(x));
  PITON_ASSERT(x.elements() == 0 || x.dim(1) == 1 || x.stride(1) >= x.dim(2),
               "{}: heads of x overlap", kName);
  const DType sums = sum_dtype(x.dtype());
  Operand{kName, "positions", positions}.shape({x.dim(0)}).dtype(DType::kI32).contiguous();
  Operand{kName, "cosine", cosine}.given();
  Operand{kName, "cosine", cosine}.shape({cosine.dim(0), x.dim(2) / 2}).dtype(sums).contiguous();
  Operand{kName, "sine", sine}.shape(cosine.shape()).dtype(sums).contiguous();
}

}  // namespace piton
