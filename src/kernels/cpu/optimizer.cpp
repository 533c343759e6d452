// Updates over spans and sums of squares.
#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/context.h"

namespace piton::cpu {

void execute(CpuContext& context, const AdamwUpdate& call) {
  const auto* scalars = call.scalars.data<float>();
  if (scalars[kApply] == 0) return;
  const double rate = scalars[kLearningRate] * call.lr_multiplier;
  const AdamwArguments arguments{
      .main = call.main.data<float>(),
      .first = call.first.raw(),
      .first_type = type_of(call.first.dtype()),
      .second = call.second.raw(),
      .second_type = type_of(call.second.dtype()),
      .copy = call.copy.defined() ? call.copy.raw() : nullptr,
      .copy_type = call.copy.defined() ? type_of(call.copy.dtype()) : Type::kF32,
      .gradient = call.gradient.data<float>(),
      .learning_rate = static_cast<float>(rate),
      .keep = static_cast<float>(1 - rate * scalars[kWeightDecay] * call.decay_multiplier),
      .beta1 = static_cast<float>(call.beta1),
      .beta2 = static_cast<float>(call.beta2),
      .rest1 = static_cast<float>(1 - call.beta1),
      .rest2 = static_cast<float>(1 - call.beta2),
      .correction1 = scalars[kCorrection1],
      .correction2 = scalars[kCorrection2],
      .eps = static_cast<float>(call.eps),
      .gradient_scale = scalars[kGradientScale],
      .update_number = static_cast<std::uint32_t>(scalars[kUpdateNumber]),
  };
  context.ranges(call.main.elements(), 65536, [&](std::int64_t begin, std::int64_t end) {
    context.vector.adamw(arguments, begin, end);
  });
}

void execute(CpuContext& context, const SgdUpdate& call) {
  const auto* scalars = call.scalars.data<float>();
  if (scalars[kApply] == 0) return;
  const SgdArguments arguments{
      .main = call.main.data<float>(),
      .buffer = call.buffer.defined() ? call.buffer.data<float>() : nullptr,
      .copy = call.copy.defined() ? call.copy.raw() : nullptr,
      .copy_type = call.copy.defined() ? type_of(call.copy.dtype()) : Type::kF32,
      .gradient = call.gradient.data<float>(),
      .learning_rate = static_cast<float>(scalars[kLearningRate] * call.lr_multiplier),
      .momentum = static_cast<float>(call.momentum),
      .decay = static_cast<float>(scalars[kWeightDecay] * call.decay_multiplier),
      .gradient_scale = scalars[kGradientScale],
  };
  context.ranges(call.main.elements(), 65536, [&](std::int64_t begin, std::int64_t end) {
    context.vector.sgd(arguments, begin, end);
  });
}

void execute(CpuContext& /*context*/, const SignUpdate& call) {
  if (call.scalars.data<float>()[kApply] == 0) return;
  const auto rate = static_cast<float>(call.rate);
  const auto* gradient = call.gradient.data<float>();
  auto* main = call.main.data<float>();
  for (std::int64_t i = 0; i < call.main.elements(); ++i) {
    if (gradient[i] > 0) main[i] -= rate;
    if (gradient[i] < 0) main[i] += rate;
  }
}

void execute(CpuContext& context, const MovingAverage& call) {
  if (call.scalars.data<float>()[kApply] == 0) return;
  const auto share = static_cast<float>(1 - call.decay);
  auto* average = call.average.data<float>();
  const auto* main = call.main.data<float>();
  context.ranges(call.main.elements(), 65536, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) average[i] += share * (main[i] - average[i]);
  });
}

void execute(CpuContext& context, const SquareSums& call) {
  const std::int64_t blocks = call.sums.elements();
  const std::int64_t grain = 8 * grain_of(call.block * 4 * 8);
  context.ranges(blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    context.vector.square_sums(call.sums.data<double>(), call.x.data<float>(), call.x.elements(),
                               call.block, begin, end);
  });
}

namespace {

// Whether the step is one, which is then part of the history.
bool is_spike(const SpikeRule& rule, double norm, std::int64_t size) {
  auto* history = rule.history.data<double>();
  const std::int64_t window = (size - kSpikeRings) / 2;
  const auto steps = static_cast<std::int64_t>(history[kSpikeSteps]);
  const std::int64_t known = std::min(steps, window);
  const auto is_far = [&](const double* ring, double value) {
    double sum = 0, squares = 0;
    for (std::int64_t i = 0; i < known; ++i) sum += ring[i];
    const double mean = sum / static_cast<double>(known);
    for (std::int64_t i = 0; i < known; ++i) squares += (ring[i] - mean) * (ring[i] - mean);
    return value - mean > rule.sigmas * std::sqrt(squares / static_cast<double>(known - 1));
  };
  double* losses = history + kSpikeRings;
  double* norms = losses + window;
  const double loss = history[kSpikeLoss];
  const bool spike = known >= std::max<std::int64_t>(2, window / 2) &&
                     (is_far(losses, loss) || is_far(norms, norm));
  if (std::isfinite(loss)) {
    losses[steps % window] = loss;
    norms[steps % window] = norm;
    history[kSpikeSteps] += 1;
  }
  return spike;
}

// The loss scale after gradients that were finite or not.
void follow(const LossScaling& scaling, bool finite, double* counts) {
  if (!finite) {
    counts[kGoodUpdates] = 0;
    counts[kHysteresisLeft] -= 1;
    if (counts[kHysteresisLeft] <= 0) {
      counts[kLossScale] = std::max(counts[kLossScale] / 2, scaling.least);
    }
    return;
  }
  counts[kGoodUpdates] += 1;
  if (counts[kGoodUpdates] < static_cast<double>(scaling.window)) return;
  counts[kGoodUpdates] = 0;
  counts[kHysteresisLeft] = static_cast<double>(scaling.hysteresis);
  counts[kLossScale] *= 2;
}

}  // namespace

// In doubles on one thread: a few thousand numbers, whose order of addition is fixed.
void execute(CpuContext&, const BeginUpdate& call) {
  const auto* sums = call.sums.data<double>();
  auto* scalars = call.scalars.data<float>();
  auto* counts = call.counts.data<double>();
  double sum = 0;
  for (std::int64_t i = 0; i < call.sums.elements(); ++i) sum += sums[i];
  const double loss_scale = counts[kLossScale];
  const double norm = std::sqrt(sum) / loss_scale;
  const bool finite = std::isfinite(norm);
  const bool spike = finite && call.spikes.history.defined() &&
                     is_spike(call.spikes, norm, call.spikes.history.elements());
  const bool made = finite && !spike;
  counts[made ? kUpdates : kSkipped] += 1;
  counts[kGradientNorm] = norm;
  const double t = std::max(counts[kUpdates], 1.0);
  scalars[kCorrection1] = static_cast<float>(1 - std::pow(call.beta1, t));
  scalars[kCorrection2] = static_cast<float>(1 - std::pow(call.beta2, t));
  const double scale = call.clip > 0 && finite ? std::min(1.0, call.clip / (norm + 1e-6)) : 1.0;
  scalars[kGradientScale] = static_cast<float>(scale / loss_scale);
  scalars[kApply] = made ? 1.0F : 0.0F;
  scalars[kUpdateNumber] = static_cast<float>(t);
  if (call.scaling.dynamic) follow(call.scaling, finite, counts);
}

}  // namespace piton::cpu
