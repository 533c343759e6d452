// CAdam's maxima of rows and update.
#include "kernels/cadam.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {
namespace {

// The new momentum of every element of the span, in its order.
template <typename Call>
Values new_momentum(const Call& call) {
  const Values scalars = Values::read(call.scalars);
  const Values old = Values::read(call.momentum);
  const Values scales = Values::read(call.scales);
  const Values gradient = Values::read(call.gradient);
  Values m(call.gradient.shape());
  for (std::int64_t i = 0; i < call.gradient.dim(0); ++i) {
    const std::int64_t row = (call.first_column + i) / call.columns;
    m(i) =
        call.beta * old(i) * scales(row) + (1 - call.beta) * gradient(i) * scalars(kGradientScale);
  }
  return m;
}

}  // namespace

void execute(const CadamMaxima& call) {
  Values maxima(call.maxima.shape());
  if (Values::read(call.scalars)(kApply) != 0) {
    const Values m = new_momentum(call);
    for (std::int64_t i = 0; i < call.gradient.dim(0); ++i) {
      double& most = maxima((call.first_column + i) / call.columns);
      most = std::max(most, std::fabs(m(i)));
    }
  }
  maxima.write(call.maxima);
}

void execute(const CadamUpdate& call) {
  const Values scalars = Values::read(call.scalars);
  if (scalars(kApply) == 0) return;
  const Values m = new_momentum(call);
  const Values maxima = Values::read(call.maxima);
  Values main = Values::read(call.main);
  Values momentum(call.momentum.shape());
  Values scales(call.scales.shape());
  for (std::int64_t row = 0; row < call.scales.dim(0); ++row) {
    scales(row) = maxima(row) / kCadamLargest + kCadamEps;
  }
  const double lr = scalars(kLearningRate);
  for (std::int64_t i = 0; i < call.main.dim(0); ++i) {
    const double scale = scales((call.first_column + i) / call.columns);
    momentum(i) = std::clamp(m(i) / scale, -kCadamLargest, kCadamLargest);
    const double sign = m(i) > 0 ? 1 : m(i) < 0 ? -1 : 0;
    main(i) = main(i) * (1 - lr * scalars(kWeightDecay) * call.decay_multiplier) - lr * sign;
  }
  main.write(call.main);
  momentum.write(call.momentum);
  scales.write(call.scales);
  if (call.copy.defined()) Values::read(call.main).write(call.copy);
}

}  // namespace piton::reference
