#include "kernels/attention_merge.h"

#include "kernels/expect.h"

namespace piton {

void AttentionMerge::check() const {
  expect_one_place(*this);
  Operand{kName, "part", part}.floating().contiguous();
  PITON_ASSERT(part.ndim() == 4, "{}: part is {}", kName, to_string(part));
  const DType sums = sum_dtype(part.dtype());
  const Shape rows{part.dim(0), part.dim(2), part.dim(1)};
  Operand{kName, "out", out}.shape(part.shape()).dtype(sums).contiguous();
  Operand{kName, "lse", lse}.shape(rows).dtype(sums).contiguous();
  Operand{kName, "part_lse", part_lse}.shape(rows).dtype(sums).contiguous();
}

}  // namespace piton
