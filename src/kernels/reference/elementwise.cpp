// Copies, sums, multiples and soft caps.
#include "kernels/elementwise.h"

#include <cmath>
#include <cstring>

#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {

void execute(const Copy& call) {
  // Copies bytes if nothing is converted, so that NaN payloads and 64-bit integers stay exact.
  if (call.src.dtype() == call.dst.dtype() && call.src.contiguous() && call.dst.contiguous()) {
    std::memmove(call.dst.raw(), call.src.raw(), static_cast<std::size_t>(call.src.bytes()));
    return;
  }
  Values::read(call.src).write(call.dst);
}

void execute(const Add& call) {
  const Values a = Values::read(call.a.flatten());
  const Values b = Values::read(call.b.flatten());
  Values y(a.shape());
  for (std::int64_t i = 0; i < call.a.elements(); ++i) y(i) = a(i) + b(i);
  y.write(call.y.flatten());
}

void execute(const Scale& call) {
  const Values x = Values::read(call.x.flatten());
  Values y(x.shape());
  for (std::int64_t i = 0; i < call.x.elements(); ++i) y(i) = call.factor * x(i);
  y.write(call.y.flatten());
}

void execute(const SoftCapForward& call) {
  const Values x = Values::read(call.x.flatten());
  Values y(x.shape());
  for (std::int64_t i = 0; i < call.x.elements(); ++i) y(i) = call.cap * std::tanh(x(i) / call.cap);
  y.write(call.y.flatten());
}

void execute(const SoftCapBackward& call) {
  const Values dy = Values::read(call.dy.flatten());
  const Values y = Values::read(call.y.flatten());
  Values dx(dy.shape());
  for (std::int64_t i = 0; i < call.dy.elements(); ++i) {
    const double tanh = y(i) / call.cap;
    dx(i) = dy(i) * (1 - tanh * tanh);
  }
  dx.write(call.dx.flatten());
}

}  // namespace piton::reference
