// Muon's momentum, scaling and update.
#include "kernels/muon.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {

void execute(const MuonMomentum& call) {
  const Values scalars = Values::read(call.scalars);
  const Values gradient = Values::read(call.gradient);
  Values buffer = Values::read(call.buffer);
  Values direction(call.direction.shape());
  for (std::int64_t i = 0; scalars(kApply) != 0 && i < call.buffer.dim(0); ++i) {
    const double g = gradient(i) * scalars(kGradientScale);
    buffer(i) = call.momentum * buffer(i) + (1 - call.momentum) * g;
    direction(i) = call.nesterov ? call.momentum * buffer(i) + (1 - call.momentum) * g : buffer(i);
  }
  buffer.write(call.buffer);
  direction.write(call.direction);
}

void execute(const MuonNormalize& call) {
  const Values direction = Values::read(call.direction);
  const Values sums = Values::read(call.sums);
  double sum = 0;
  for (std::int64_t i = 0; i < call.sums.dim(0); ++i) sum += sums(i);
  const double length = std::max(std::sqrt(sum), call.eps);
  Values x(call.x.shape());
  for (std::int64_t i = 0; i < call.x.dim(0); ++i) x(i) = direction(i) / length;
  x.write(call.x);
}

void execute(const SymmetricProduct& call) {
  const Values left = Values::read(call.left);
  const Values right = Values::read(call.right);
  const Values addend = Values::read(call.addend);
  const auto element = [&](const Values& side, std::int64_t row, std::int64_t depth) {
    return call.transposed ? side(depth, row) : side(row, depth);
  };
  Values y(call.y.shape());
  for (std::int64_t i = 0; i < call.y.dim(0); ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (std::int64_t d = 0; d < call.depth(); ++d)
        sum += element(left, i, d) * element(right, j, d);
      sum = call.factor * sum + (addend.given() ? call.addend_factor * addend(i, j) : 0) +
            (i == j ? call.diagonal : 0);
      y(i, j) = y(j, i) = sum;
    }
  }
  y.write(call.y);
}

void execute(const MuonUpdate& call) {
  const Values scalars = Values::read(call.scalars);
  if (scalars(kApply) == 0) return;
  const Values direction = Values::read(call.direction);
  Values main = Values::read(call.main);
  const double lr = scalars(kLearningRate);
  for (std::int64_t i = 0; i < call.main.dim(0); ++i) {
    main(i) = main(i) * (1 - lr * scalars(kWeightDecay) * call.decay_multiplier) -
              lr * call.lr_multiplier * direction(i);
  }
  main.write(call.main);
  if (call.copy.defined()) Values::read(call.main).write(call.copy);
}

}  // namespace piton::reference
