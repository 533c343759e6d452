// Checks of elementwise calls.
#include "kernels/elementwise.h"

#include "kernels/expect.h"

namespace piton {

void Copy::check() const {
  expect_one_place(*this);
  Operand{kName, "src", src}.given();
  Operand{kName, "dst", dst}.shape(src.shape());
  if (src.dtype() != dst.dtype()) {
    Operand{kName, "src", src}.floating();
    Operand{kName, "dst", dst}.floating();
  }
}

void Add::check() const {
  expect_one_place(*this);
  Operand{kName, "a", a}.floating().contiguous();
  Operand{kName, "b", b}.shape(a.shape()).dtype(a.dtype()).contiguous();
  Operand{kName, "y", y}.shape(a.shape()).dtype(a.dtype()).contiguous();
}

void Scale::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.floating().contiguous();
  Operand{kName, "y", y}.shape(x.shape()).dtype(x.dtype()).contiguous();
  expect_used(kName, used);
  if (used.defined()) Operand{kName, "x", x}.shape({x.dim(0), x.dim(-1)});
}

void SoftCapForward::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.dtype(sum_dtype(x.dtype())).contiguous();
  Operand{kName, "y", y}.shape(x.shape()).dtype(x.dtype()).contiguous();
  PITON_ASSERT(cap > 0, "{}: cap {}", kName, cap);
}

void SoftCapBackward::check() const {
  expect_one_place(*this);
  Operand{kName, "dy", dy}.floating().contiguous();
  Operand{kName, "dx", dx}.shape(dy.shape()).dtype(dy.dtype()).contiguous();
  Operand{kName, "y", y}.shape(dy.shape()).dtype(sum_dtype(dy.dtype())).contiguous();
  PITON_ASSERT(cap > 0, "{}: cap {}", kName, cap);
}

void GatedSumForward::check() const {
  expect_one_place(*this);
  Operand{kName, "y", y}.given().floating().contiguous();
  PITON_ASSERT(y.ndim() == 2, "{}: {} of shape {}", kName, "y", to_string(y.shape()));
  Operand{kName, "a", a}.shape(y.shape()).dtype(y.dtype()).contiguous();
  Operand{kName, "x", x}.shape(y.shape()).dtype(y.dtype()).contiguous();
  Operand{kName, "gate", gate}.shape({y.dim(0), 1}).dtype(sum_dtype(y.dtype())).contiguous();
}

void GatedSumBackward::check() const {
  expect_one_place(*this);
  Operand{kName, "dx", dx}.given().floating().contiguous();
  PITON_ASSERT(dx.ndim() == 2, "{}: {} of shape {}", kName, "dx", to_string(dx.shape()));
  Operand{kName, "dy", dy}.shape(dx.shape()).dtype(dx.dtype()).contiguous();
  Operand{kName, "x", x}.shape(dx.shape()).dtype(dx.dtype()).contiguous();
  const Shape rows{dx.dim(0), 1};
  Operand{kName, "gate", gate}.shape(rows).dtype(sum_dtype(dx.dtype())).contiguous();
  Operand{kName, "dgate", dgate}.shape(rows).dtype(gate.dtype()).contiguous();
}

namespace {

void expect_heads(std::string_view call, const Tensor& y, const Tensor& own, const Tensor& shared) {
  Operand{call, "y", y}.given().floating().rows();
  PITON_ASSERT(y.ndim() == 3, "{}: y is {}, wanted [n, heads, d]", call, to_string(y));
  Operand{call, "own", own}.given().floating().rows();
  PITON_ASSERT(own.ndim() == 3, "{}: own is {}, wanted [n, heads, c]", call, to_string(own));
  Operand{call, "own", own}.shape({y.dim(0), y.dim(1), own.dim(2)}).dtype(y.dtype());
  std::int64_t used = own.dim(2);
  if (shared.defined()) {
    PITON_ASSERT(shared.ndim() == 2, "{}: shared is {}", call, to_string(shared));
    Operand{call, "shared", shared}.shape({y.dim(0), shared.dim(1)}).dtype(y.dtype()).rows();
    used += shared.dim(1);
  }
  PITON_ASSERT(used <= y.dim(2), "{}: {} channels in heads of {}", call, used, y.dim(2));
}

}  // namespace

void JoinHeads::check() const {
  expect_one_place(*this);
  expect_heads(kName, y, own, shared);
}

void SplitHeads::check() const {
  expect_one_place(*this);
  expect_heads(kName, y, own, shared);
}

}  // namespace piton
