// Copies, sums, multiples, soft caps, gated sums, and heads with a common part.
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
  Values y = Values::read(call.y.flatten());  // rows that are not used stay as they are
  const std::int64_t count =
      call.used.defined() ? rows_used(call.used, call.x.dim(0)) * call.x.dim(1) : call.x.elements();
  for (std::int64_t i = 0; i < count; ++i) y(i) = call.factor * x(i);
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

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

void execute(const GatedSumForward& call) {
  const Values a = Values::read(call.a);
  const Values x = Values::read(call.x);
  const Values gate = Values::read(call.gate);
  Values y(a.shape());
  for (std::int64_t t = 0; t < call.y.dim(0); ++t) {
    for (std::int64_t i = 0; i < call.y.dim(1); ++i) y(t, i) = a(t, i) + sigmoid(gate(t)) * x(t, i);
  }
  y.write(call.y);
}

void execute(const GatedSumBackward& call) {
  const Values dy = Values::read(call.dy);
  const Values x = Values::read(call.x);
  const Values gate = Values::read(call.gate);
  Values dx(dy.shape());
  Values dgate(gate.shape());
  for (std::int64_t t = 0; t < call.dx.dim(0); ++t) {
    const double share = sigmoid(gate(t));
    double sum = 0;
    for (std::int64_t i = 0; i < call.dx.dim(1); ++i) {
      dx(t, i) = share * dy(t, i);
      sum += dy(t, i) * x(t, i);
    }
    dgate(t) = share * (1 - share) * sum;
  }
  dx.write(call.dx);
  dgate.write(call.dgate);
}

void execute(const JoinHeads& call) {
  const Values own = Values::read(call.own);
  const Values shared = Values::read(call.shared);
  const std::int64_t c = call.own.dim(2);
  const std::int64_t used = c + (shared.given() ? call.shared.dim(1) : 0);
  Values y(call.y.shape());
  for (std::int64_t t = 0; t < call.y.dim(0); ++t) {
    for (std::int64_t head = 0; head < call.y.dim(1); ++head) {
      for (std::int64_t i = 0; i < used; ++i)
        y(t, head, i) = i < c ? own(t, head, i) : shared(t, i - c);
    }
  }
  y.write(call.y);
}

void execute(const SplitHeads& call) {
  const Values y = Values::read(call.y);
  const std::int64_t c = call.own.dim(2);
  Values own(call.own.shape());
  const bool any = call.shared.defined();
  Values shared(any ? call.shared.shape() : Shape{0, 0});
  for (std::int64_t t = 0; t < call.y.dim(0); ++t) {
    for (std::int64_t head = 0; head < call.y.dim(1); ++head) {
      for (std::int64_t i = 0; i < c; ++i) own(t, head, i) = y(t, head, i);
      for (std::int64_t i = 0; any && i < call.shared.dim(1); ++i)
        shared(t, i) += y(t, head, c + i);
    }
  }
  own.write(call.own);
  if (any) shared.write(call.shared);
}

}  // namespace piton::reference
