// AdamW, SGD and sums of squares over flat spans.
#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {

void execute(const AdamwUpdate& call) {
  const Values scalars = Values::read(call.scalars);
  if (scalars(kApply) == 0) return;
  const Values gradient = Values::read(call.gradient);
  Values main = Values::read(call.main);
  Values m = Values::read(call.first);
  Values v = Values::read(call.second);
  const double lr = scalars(kLearningRate) * call.lr_multiplier;
  for (std::int64_t i = 0; i < call.main.dim(0); ++i) {
    const double g = gradient(i) * scalars(kGradientScale);
    main(i) *= 1 - lr * call.weight_decay;
    m(i) = call.beta1 * m(i) + (1 - call.beta1) * g;
    v(i) = call.beta2 * v(i) + (1 - call.beta2) * g * g;
    main(i) -=
        lr * (m(i) / scalars(kCorrection1)) / (std::sqrt(v(i) / scalars(kCorrection2)) + call.eps);
  }
  main.write(call.main);
  m.write(call.first);
  v.write(call.second);
  // The copy is rounded from the fp32 value, not from the double.
  if (call.copy.defined()) Values::read(call.main).write(call.copy);
}

void execute(const SgdUpdate& call) {
  const Values scalars = Values::read(call.scalars);
  if (scalars(kApply) == 0) return;
  const Values gradient = Values::read(call.gradient);
  Values main = Values::read(call.main);
  Values buffer = Values::read(call.buffer);
  const double lr = scalars(kLearningRate) * call.lr_multiplier;
  for (std::int64_t i = 0; i < call.main.dim(0); ++i) {
    double g = gradient(i) * scalars(kGradientScale) + call.weight_decay * main(i);
    if (buffer.given()) g = buffer(i) = call.momentum * buffer(i) + g;
    main(i) -= lr * g;
  }
  main.write(call.main);
  if (call.buffer.defined()) buffer.write(call.buffer);
  if (call.copy.defined()) Values::read(call.main).write(call.copy);
}

void execute(const SquareSums& call) {
  const Values x = Values::read(call.x);
  Values sums(call.sums.shape());
  for (std::int64_t i = 0; i < call.x.dim(0); ++i) sums(i / call.block) += x(i) * x(i);
  sums.write(call.sums);
}

void execute(const BeginUpdate& call) {
  const Values sums = Values::read(call.sums);
  Values scalars = Values::read(call.scalars);
  Values counts = Values::read(call.counts);
  double sum = 0;
  for (std::int64_t i = 0; i < call.sums.dim(0); ++i) sum += sums(i);
  const double norm = std::sqrt(sum);
  const bool finite = std::isfinite(norm);
  counts(finite ? kUpdates : kSkipped) += 1;
  counts(kGradientNorm) = norm;
  const double t = std::max(counts(kUpdates), 1.0);
  scalars(kCorrection1) = 1 - std::pow(call.beta1, t);
  scalars(kCorrection2) = 1 - std::pow(call.beta2, t);
  scalars(kGradientScale) =
      call.clip > 0 && finite ? std::min(1.0, call.clip / (norm + 1e-6)) : 1.0;
  scalars(kApply) = finite ? 1 : 0;
  counts.write(call.counts);
  scalars.write(call.scalars);
}

}  // namespace piton::reference
