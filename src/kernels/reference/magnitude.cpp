// Magnitudes of columns.
#include "kernels/magnitude.h"

#include <cmath>

#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {
namespace {

double inverse_length(double squares) { return squares > 0 ? 1 / std::sqrt(squares) : 0; }

}  // namespace

void execute(const RowSquares& call) {
  const Values rows = Values::read(call.rows);
  Values squares(call.squares.shape());
  for (std::int64_t j = 0; j < call.rows.dim(0); ++j) {
    for (std::int64_t i = 0; i < call.rows.dim(1); ++i) squares(j) += rows(j, i) * rows(j, i);
  }
  squares.write(call.squares);
}

void execute(const MagnitudeForward& call) {
  const Values x = Values::read(call.x);
  const Values magnitude = Values::read(call.magnitude);
  const Values squares = Values::read(call.squares);
  const Values bias = Values::read(call.bias);
  Values y(call.x.shape());
  for (std::int64_t row = 0; row < call.x.dim(0); ++row) {
    for (std::int64_t j = 0; j < call.x.dim(1); ++j) {
      const double offset = bias.given() ? bias(j) : 0;
      y(row, j) = (x(row, j) - offset) * (magnitude(j) * inverse_length(squares(j))) + offset;
    }
  }
  y.write(call.y);
}

void execute(const MagnitudeGradient& call) {
  const Values dy = Values::read(call.dy);
  const Values x = Values::read(call.x);
  const Values squares = Values::read(call.squares);
  const Values bias = Values::read(call.bias);
  Values dmagnitude = Values::read(call.dmagnitude);
  for (std::int64_t j = 0; j < call.x.dim(1); ++j) {
    const double offset = bias.given() ? bias(j) : 0;
    double sum = 0;
    for (std::int64_t row = 0; row < call.x.dim(0); ++row) sum += dy(row, j) * (x(row, j) - offset);
    dmagnitude(j) += sum * inverse_length(squares(j));
  }
  dmagnitude.write(call.dmagnitude);
}

}  // namespace piton::reference
