// Muon's momentum, scaling and update over spans.
#include "kernels/muon.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kMuonGrain = 65536;

}  // namespace

void execute(CpuContext& context, const MuonMomentum& call) {
  const auto* scalars = call.scalars.data<float>();
  if (scalars[kApply] == 0) {
    std::memset(call.direction.raw(), 0, static_cast<std::size_t>(call.direction.bytes()));
    return;
  }
  const MuonMomentumArguments arguments{.direction = call.direction.data<float>(),
                                        .buffer = call.buffer.data<float>(),
                                        .gradient = call.gradient.data<float>(),
                                        .scale = scalars[kGradientScale],
                                        .keep = static_cast<float>(call.momentum),
                                        .rest = static_cast<float>(1 - call.momentum),
                                        .nesterov = call.nesterov};
  context.ranges(call.buffer.elements(), kMuonGrain, [&](std::int64_t begin, std::int64_t end) {
    context.vector.muon_momentum(arguments, begin, end);
  });
}

void execute(CpuContext& context, const MuonNormalize& call) {
  const auto* sums = call.sums.data<double>();
  double sum = 0;
  for (std::int64_t i = 0; i < call.sums.elements(); ++i) sum += sums[i];
  const auto factor = static_cast<float>(1 / std::max(std::sqrt(sum), call.eps));
  const auto* direction = call.direction.data<float>();
  context.ranges(call.x.elements(), kMuonGrain, [&](std::int64_t begin, std::int64_t end) {
    context.vector.muon_normalize(call.x.raw() + begin * size_bytes(call.x.dtype()),
                                  type_of(call.x.dtype()), direction + begin, end - begin, factor);
  });
}

void execute(CpuContext& context, const MuonUpdate& call) {
  const auto* scalars = call.scalars.data<float>();
  if (scalars[kApply] == 0) return;
  const double rate = scalars[kLearningRate];
  const double decay = scalars[kWeightDecay] * call.decay_multiplier;
  const bool copies = call.copy.defined();
  const MuonUpdateArguments arguments{.main = call.main.data<float>(),
                                      .copy = copies ? call.copy.raw() : nullptr,
                                      .copy_type = copies ? type_of(call.copy.dtype()) : Type::kF32,
                                      .direction = call.direction.raw(),
                                      .direction_type = type_of(call.direction.dtype()),
                                      .keep = static_cast<float>(1 - rate * decay),
                                      .step = static_cast<float>(rate * call.lr_multiplier)};
  context.ranges(call.main.elements(), kMuonGrain, [&](std::int64_t begin, std::int64_t end) {
    context.vector.muon_update(arguments, begin, end);
  });
}

}  // namespace piton::cpu
