// AdamW, SGD and sums of squares over flat spans.
#include "kernels/optimizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {
namespace {

// v rounded to bf16 by chance (kernels/optimizer.h), from its fp32 bits.
double drawn_bf16(double v, double gradient, double main, double update_number) {
  const auto bits = [](double x) { return std::bit_cast<std::uint32_t>(static_cast<float>(x)); };
  std::uint32_t x = bits(gradient) * 0x9E3779B1U + bits(main) +
                    static_cast<std::uint32_t>(update_number) * 0x85EBCA6BU;
  x = (x ^ (x >> 16)) * 0x7FEB352DU;
  x = (x ^ (x >> 15)) * 0x846CA68BU;
  x ^= x >> 16;
  return std::bit_cast<float>((bits(v) + (x & 0xFFFFU)) & 0xFFFF0000U);
}

}  // namespace

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
    const double before = main(i);
    main(i) *= 1 - lr * scalars(kWeightDecay) * call.decay_multiplier;
    m(i) = call.beta1 * m(i) + (1 - call.beta1) * g;
    v(i) = call.beta2 * v(i) + (1 - call.beta2) * g * g;
    main(i) -=
        lr * (m(i) / scalars(kCorrection1)) / (std::sqrt(v(i) / scalars(kCorrection2)) + call.eps);
    if (call.second.dtype() == DType::kBF16) {
      v(i) = drawn_bf16(v(i), gradient(i), before, scalars(kUpdateNumber));
    }
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
    double g = gradient(i) * scalars(kGradientScale) +
               scalars(kWeightDecay) * call.decay_multiplier * main(i);
    if (buffer.given()) g = buffer(i) = call.momentum * buffer(i) + g;
    main(i) -= lr * g;
  }
  main.write(call.main);
  if (call.buffer.defined()) buffer.write(call.buffer);
  if (call.copy.defined()) Values::read(call.main).write(call.copy);
}

void execute(const SignUpdate& call) {
  const Values scalars = Values::read(call.scalars);
  if (scalars(kApply) == 0) return;
  const Values gradient = Values::read(call.gradient);
  Values main = Values::read(call.main);
  for (std::int64_t i = 0; i < call.main.dim(0); ++i) {
    if (gradient(i) > 0) main(i) -= call.rate;
    if (gradient(i) < 0) main(i) += call.rate;
  }
  main.write(call.main);
}

void execute(const MovingAverage& call) {
  const Values scalars = Values::read(call.scalars);
  if (scalars(kApply) == 0) return;
  const Values main = Values::read(call.main);
  Values average = Values::read(call.average);
  for (std::int64_t i = 0; i < call.main.dim(0); ++i) {
    average(i) += (1 - call.decay) * (main(i) - average(i));
  }
  average.write(call.average);
}

void execute(const SquareSums& call) {
  const Values x = Values::read(call.x);
  Values sums(call.sums.shape());
  for (std::int64_t i = 0; i < call.x.dim(0); ++i) sums(i / call.block) += x(i) * x(i);
  sums.write(call.sums);
}

namespace {

// mean + sigmas deviation of `count` values from `begin` on.
double spike_limit(const Values& history, std::int64_t begin, std::int64_t count, double sigmas) {
  double mean = 0, variance = 0;
  for (std::int64_t i = 0; i < count; ++i) mean += history(begin + i) / static_cast<double>(count);
  for (std::int64_t i = 0; i < count; ++i) {
    variance += std::pow(history(begin + i) - mean, 2) / static_cast<double>(count - 1);
  }
  return mean + sigmas * std::sqrt(variance);
}

bool is_spike(const SpikeRule& rule, double norm) {
  Values history = Values::read(rule.history);
  const std::int64_t window = (rule.history.dim(0) - kSpikeRings) / 2;
  const auto steps = static_cast<std::int64_t>(history(kSpikeSteps));
  const std::int64_t known = std::min(steps, window);
  const double loss = history(kSpikeLoss);
  const bool spike = known >= 2 && known >= window / 2 &&
                     (loss > spike_limit(history, kSpikeRings, known, rule.sigmas) ||
                      norm > spike_limit(history, kSpikeRings + window, known, rule.sigmas));
  if (std::isfinite(loss)) {
    history(kSpikeRings + steps % window) = loss;
    history(kSpikeRings + window + steps % window) = norm;
    history(kSpikeSteps) += 1;
  }
  history.write(rule.history);
  return spike;
}

}  // namespace

void execute(const BeginUpdate& call) {
  const Values sums = Values::read(call.sums);
  Values scalars = Values::read(call.scalars);
  Values counts = Values::read(call.counts);
  double sum = 0;
  for (std::int64_t i = 0; i < call.sums.dim(0); ++i) sum += sums(i);
  const double loss_scale = counts(kLossScale);
  const double norm = std::sqrt(sum) / loss_scale;
  const bool finite = std::isfinite(norm);
  const bool made = finite && !(call.spikes.history.defined() && is_spike(call.spikes, norm));
  counts(made ? kUpdates : kSkipped) += 1;
  counts(kGradientNorm) = norm;
  const double t = std::max(counts(kUpdates), 1.0);
  scalars(kCorrection1) = 1 - std::pow(call.beta1, t);
  scalars(kCorrection2) = 1 - std::pow(call.beta2, t);
  scalars(kGradientScale) =
      (call.clip > 0 && finite ? std::min(1.0, call.clip / (norm + 1e-6)) : 1.0) / loss_scale;
  scalars(kApply) = made ? 1 : 0;
  scalars(kUpdateNumber) = t;
  if (call.scaling.dynamic) {
    counts(kGoodUpdates) = finite ? counts(kGoodUpdates) + 1 : 0;
    if (!finite) counts(kHysteresisLeft) -= 1;
    if (!finite && counts(kHysteresisLeft) <= 0) {
      counts(kLossScale) = std::max(loss_scale / 2, call.scaling.least);
    }
    if (counts(kGoodUpdates) == static_cast<double>(call.scaling.window)) {
      counts(kGoodUpdates) = 0;
      counts(kHysteresisLeft) = static_cast<double>(call.scaling.hysteresis);
      counts(kLossScale) = 2 * loss_scale;
    }
  }
  counts.write(call.counts);
  scalars.write(call.scalars);
}

}  // namespace piton::reference
