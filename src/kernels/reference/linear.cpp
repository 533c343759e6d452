// y = x W^T + bias and its gradients.
#include "kernels/linear.h"

#include "kernels/reference/activation.h"
#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {
namespace {

Values rows_of(const WeightView& weight) {
  PITON_ASSERT(weight.form == WeightForm::kRows, "reference kernels read plain rows of a weight");
  return Values::read(weight.tensor);
}

}  // namespace

void execute(const LinearForward& call) {
  const Values x = Values::read(call.x);
  const Values w = rows_of(call.weight);
  const Values bias = Values::read(call.bias);
  const Values residual = Values::read(call.residual);
  Values y(call.y.shape());
  Values preactivation(call.y.shape());
  for (std::int64_t row = 0; row < call.x.dim(0); ++row) {
    for (std::int64_t out = 0; out < call.weight.out; ++out) {
      double sum = 0;
      for (std::int64_t in = 0; in < call.weight.in; ++in) sum += x(row, in) * w(out, in);
      sum += bias.given() ? bias(out) : 0;
      preactivation(row, out) = sum;
      y(row, out) = call.activation ? activated(*call.activation, sum)
                                    : sum + (residual.given() ? residual(row, out) : 0);
    }
  }
  y.write(call.y);
  if (call.preactivation.defined()) preactivation.write(call.preactivation);
}

void execute(const LinearBackwardInput& call) {
  const Values dy = Values::read(call.dy);
  const Values w = rows_of(call.weight);
  Values dx(call.dx.shape());
  for (std::int64_t row = 0; row < call.dy.dim(0); ++row) {
    for (std::int64_t out = 0; out < call.weight.out; ++out) {
      for (std::int64_t in = 0; in < call.weight.in; ++in) dx(row, in) += dy(row, out) * w(out, in);
    }
  }
  dx.write(call.dx);
}

void execute(const LinearBackwardWeight& call) {
  const Values dy = Values::read(call.dy);
  const Values x = Values::read(call.x);
  Values sums(call.dweight.shape());
  for (std::int64_t row = 0; row < call.x.dim(0); ++row) {
    for (std::int64_t out = 0; out < call.dy.dim(1); ++out) {
      for (std::int64_t in = 0; in < call.x.dim(1); ++in)
        sums(out, in) += dy(row, out) * x(row, in);
    }
  }
  Values dweight = Values::read(call.dweight);
  for (std::int64_t out = 0; out < call.dy.dim(1); ++out) {
    for (std::int64_t in = 0; in < call.x.dim(1); ++in) dweight(out, in) += sums(out, in);
  }
  dweight.write(call.dweight);

  if (!call.dbias.defined()) return;
  Values dbias = Values::read(call.dbias);
  for (std::int64_t out = 0; out < call.dy.dim(1); ++out) {
    double sum = 0;
    for (std::int64_t row = 0; row < call.x.dim(0); ++row) sum += dy(row, out);
    dbias(out) += sum;
  }
  dbias.write(call.dbias);
}

void execute(const PackWeight&) {
  PITON_ASSERT(false, "reference kernels ask for no packed weight: packed_bytes() is 0");
}

}  // namespace piton::reference
