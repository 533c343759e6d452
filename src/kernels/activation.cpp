// Checks of activations.
#include "kernels/activation.h"

#include "kernels/expect.h"

namespace piton {
namespace {

void expect_gate(std::string_view call, const GateRule& gate, const Tensor& up) {
  PITON_ASSERT(gate.bound >= 0, "{}: a bound of {}", call, gate.bound);
  PITON_ASSERT(!gate.given() || up.defined(), "{}: a rule of gates without a gate", call);
}

}  // namespace

void ActivationForward::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.floating().rows();
  const Shape shape{x.dim(0), x.dim(-1)};
  Operand{kName, "x", x}.shape(shape);
  Operand{kName, "y", y}.shape(shape).dtype(x.dtype()).rows();
  if (up.defined()) Operand{kName, "up", up}.shape(shape).dtype(x.dtype()).rows();
  expect_gate(kName, gate, up);
  expect_used(kName, used);
}

void ActivationBackward::check() const {
  expect_one_place(*this);
  Operand{kName, "x", x}.floating().rows();
  const Shape shape{x.dim(0), x.dim(-1)};
  Operand{kName, "x", x}.shape(shape);
  Operand{kName, "dx", dx}.shape(shape).dtype(x.dtype()).rows();
  Operand{kName, "dy", dy}.shape(shape).dtype(x.dtype()).rows();
  PITON_ASSERT(up.defined() == dup.defined(), "{}: up without dup, or the reverse", kName);
  expect_gate(kName, gate, up);
  expect_used(kName, used);
  if (up.defined()) {
    Operand{kName, "up", up}.shape(shape).dtype(x.dtype()).rows();
    Operand{kName, "dup", dup}.shape(shape).dtype(x.dtype()).rows();
  }
}

}  // namespace piton
