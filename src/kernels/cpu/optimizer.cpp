// Updates over spans and sums of squares.
#include "kernels/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/context.h"

namespace piton::cpu {

void execute(Context& context, const AdamwUpdate& call) {
  const auto* scalars = call.scalars.data<float>();
  if (scalars[kApply] == 0) return;
  const double rate = scalars[kLearningRate] * call.lr_multiplier;
  const AdamwArguments arguments{
      .main = call.main.data<float>(),
      .first = call.first.data<float>(),
      .second = call.second.data<float>(),
      .copy = call.copy.defined() ? call.copy.raw() : nullptr,
      .copy_type = call.copy.defined() ? type_of(call.copy.dtype()) : Type::kF32,
      .gradient = call.gradient.data<float>(),
      .learning_rate = static_cast<float>(rate),
      .keep = static_cast<float>(1 - rate * call.weight_decay),
      .beta1 = static_cast<float>(call.beta1),
      .beta2 = static_cast<float>(call.beta2),
      .rest1 = static_cast<float>(1 - call.beta1),
      .rest2 = static_cast<float>(1 - call.beta2),
      .correction1 = scalars[kCorrection1],
      .correction2 = scalars[kCorrection2],
      .eps = static_cast<float>(call.eps),
      .gradient_scale = scalars[kGradientScale],
  };
  context.ranges(call.main.elements(), 65536, [&](std::int64_t begin, std::int64_t end) {
    context.vector.adamw(arguments, begin, end);
  });
}

void execute(Context& context, const SgdUpdate& call) {
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
      .decay = static_cast<float>(call.weight_decay),
      .gradient_scale = scalars[kGradientScale],
  };
  context.ranges(call.main.elements(), 65536, [&](std::int64_t begin, std::int64_t end) {
    context.vector.sgd(arguments, begin, end);
  });
}

void execute(Context& context, const SquareSums& call) {
  const std::int64_t blocks = call.sums.elements();
  const std::int64_t grain = 8 * grain_of(call.block * 4 * 8);
  context.ranges(blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    context.vector.square_sums(call.sums.data<double>(), call.x.data<float>(), call.x.elements(),
                               call.block, begin, end);
  });
}

// In double on one thread: a few thousand numbers, added in a fixed order.
void execute(Context&, const BeginUpdate& call) {
  const auto* sums = call.sums.data<double>();
  auto* scalars = call.scalars.data<float>();
  auto* counts = call.counts.data<double>();
  double sum = 0;
  for (std::int64_t i = 0; i < call.sums.elements(); ++i) sum += sums[i];
  const double norm = std::sqrt(sum);
  const bool finite = std::isfinite(norm);
  counts[finite ? kUpdates : kSkipped] += 1;
  counts[kGradientNorm] = norm;
  const double t = std::max(counts[kUpdates], 1.0);
  scalars[kCorrection1] = static_cast<float>(1 - std::pow(call.beta1, t));
  scalars[kCorrection2] = static_cast<float>(1 - std::pow(call.beta2, t));
  const double scale = call.clip > 0 && finite ? std::min(1.0, call.clip / (norm + 1e-6)) : 1.0;
  scalars[kGradientScale] = static_cast<float>(scale);
  scalars[kApply] = finite ? 1.0F : 0.0F;
}

}  // namespace piton::cpu
