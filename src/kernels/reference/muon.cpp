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

void execute(const MuonTerms& call) {
  const Values gram = Values::read(call.gram);
  Values scaled(call.gram.shape());
  Values rest(call.gram.shape());
  for (std::int64_t i = 0; i < call.gram.dim(0); ++i) {
    for (std::int64_t j = 0; j < call.gram.dim(0); ++j) {
      scaled(i, j) = call.c * gram(i, j);
      rest(i, j) = call.b * gram(i, j) + (i == j ? call.a : 0);
    }
  }
  scaled.write(call.scaled);
  rest.write(call.rest);
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
