// check() of the calls that draw tokens.
#include "kernels/sampling.h"

#include "kernels/expect.h"

namespace piton {
namespace {

void expect_parts(std::string_view call, const Tensor& logits, std::int64_t vocabulary) {
  Operand{call, "logits", logits}.floating().contiguous().dtype(sum_dtype(logits.dtype()));
  PITON_ASSERT(logits.ndim() == 3 && vocabulary > 0 && logits.dim(0) * logits.dim(2) >= vocabulary,
               "{}: logits are {}, and the vocabulary {}", call, to_string(logits), vocabulary);
}

}  // namespace

void ChangeLogits::check() const {
  expect_one_place(*this);
  Operand{kName, "logits", logits}.given();
  expect_parts(kName, logits, vocabulary);
  const std::int64_t n = logits.dim(1);
  if (seen.defined()) {
    Operand{kName, "seen", seen}.shape({seen.dim(0), 3}).dtype(DType::kI32).contiguous();
    Operand{kName, "penalties", penalties}.shape({n, 3}).dtype(DType::kF64).contiguous();
  }
  if (allowed.defined()) {
    const std::int64_t bytes = (vocabulary + 7) / 8;
    Operand{kName, "allowed", allowed}.shape({n, bytes}).dtype(DType::kU8).contiguous();
  }
}

void DrawTokens::check() const {
  expect_one_place(*this);
  Operand{kName, "logits", logits}.given();
  expect_parts(kName, logits, vocabulary);
  const std::int64_t n = logits.dim(1);
  Operand{kName, "ids", ids}.shape({n}).dtype(DType::kI32).contiguous();
  Operand{kName, "filters", filters}.shape({n, 4}).dtype(DType::kF64).contiguous();
  Operand{kName, "places", places}.shape({n, 5}).dtype(DType::kI32).contiguous();
}

}  // namespace piton
