// Dropout with bias and residual.
#include "kernels/dropout.h"

#include "kernels/reference/calls.h"
#include "kernels/reference/mask.h"
#include "kernels/reference/values.h"

namespace piton::reference {

void execute(const DropoutAddForward& call) {
  const Values x = Values::read(call.x);
  const Values bias = Values::read(call.bias);
  const Values residual = Values::read(call.residual);
  const MaskDraws draws(call.dropout);
  Values y(call.y.shape());
  for (std::int64_t row = 0; row < call.x.dim(0); ++row) {
    for (std::int64_t i = 0; i < call.x.dim(1); ++i) {
      const double sum = x(row, i) + (bias.given() ? bias(i) : 0);
      y(row, i) = sum * draws.row_factor(row, i) + (residual.given() ? residual(row, i) : 0);
    }
  }
  y.write(call.y);
}

void execute(const DropoutAddBackward& call) {
  const Values dy = Values::read(call.dy);
  const MaskDraws draws(call.dropout);
  const std::int64_t h = call.dy.dim(1);
  Values dx(call.dx.shape());
  Values sum(Shape{h});
  for (std::int64_t row = 0; row < call.dy.dim(0); ++row) {
    for (std::int64_t i = 0; i < h; ++i) {
      dx(row, i) = dy(row, i) * draws.row_factor(row, i);
      sum(i) += dx(row, i);
    }
  }
  dx.write(call.dx);
  if (!call.dbias.defined()) return;
  Values dbias = Values::read(call.dbias);
  for (std::int64_t i = 0; i < h; ++i) dbias(i) += sum(i);
  dbias.write(call.dbias);
}

}  // namespace piton::reference
