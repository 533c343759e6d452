// Checks of embeddings.
#include "kernels/embedding.h"

#include "kernels/expect.h"

namespace piton {

void EmbeddingForward::check() const {
  expect_one_place(*this);
  Operand{kName, "table", table}.floating().contiguous();
  Operand{kName, "ids", ids}.given();
  Operand{kName, "ids", ids}.shape({ids.dim(0)}).dtype(DType::kI32).contiguous();
  Operand{kName, "table", table}.shape({table.dim(0), table.dim(-1)});
  Operand{kName, "y", y}.shape({ids.dim(0), table.dim(1)}).dtype(table.dtype()).contiguous();
  expect_used(kName, used);
}

void EmbeddingBackward::check() const {
  expect_one_place(*this);
  Operand{kName, "dy", dy}.floating().contiguous();
  Operand{kName, "ids", ids}.given();
  Operand{kName, "ids", ids}.shape({ids.dim(0)}).dtype(DType::kI32).contiguous();
  Operand{kName, "dy", dy}.shape({ids.dim(0), dy.dim(-1)});
  Operand{kName, "dtable", dtable}.dtype(sum_dtype(dy.dtype())).contiguous();
  Operand{kName, "dtable", dtable}.shape({dtable.dim(0), dy.dim(1)});
}

void AddNoise::check() const {
  expect_one_place(*this);
  Operand{kName, "y", y}.floating().contiguous();
  Operand{kName, "y", y}.shape({y.dim(0), y.dim(-1)});
  if (bounds.defined())
    Operand{kName, "bounds", bounds}.shape({y.dim(0)}).dtype(DType::kF32).contiguous();
  PITON_ASSERT(rows.first_column == 0, "{}: columns from {} on", kName, rows.first_column);
  expect_drawn_rows(kName, rows);
}

}  // namespace piton
