// Muon's momentum, scaling and update over spans, in blocks that stay in the first-level cache
// while they are converted.
#include "kernels/muon.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kMuonBlock = 2048;

// Calls body(begin, end, floats) for blocks of [0, n); floats [kMuonBlock] are of the thread.
template <typename Body>
void muon_blocks(Context& context, std::int64_t n, const Body& body) {
  context.ranges(n, 32 * kMuonBlock, [&](std::int64_t begin, std::int64_t end) {
    auto* floats = reinterpret_cast<float*>(context.scratch.own(kMuonBlock * 4));
    for (std::int64_t at = begin; at < end; at += kMuonBlock) {
      body(at, std::min(at + kMuonBlock, end), floats);
    }
  });
}

std::byte* element(const Tensor& tensor, std::int64_t index) {
  return tensor.raw() + index * size_bytes(tensor.dtype());
}

}  // namespace

void execute(Context& context, const MuonMomentum& call) {
  const auto* scalars = call.scalars.data<float>();
  auto* direction = call.direction.data<float>();
  if (scalars[kApply] == 0) {
    std::memset(direction, 0, static_cast<std::size_t>(call.direction.bytes()));
    return;
  }
  auto* buffer = call.buffer.data<float>();
  const auto* gradient = call.gradient.data<float>();
  const float scale = scalars[kGradientScale];
  const auto keep = static_cast<float>(call.momentum);
  const auto rest = static_cast<float>(1 - call.momentum);
  context.ranges(call.buffer.elements(), 65536, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float g = rest * (gradient[i] * scale);
      const float sum = keep * buffer[i] + g;
      buffer[i] = sum;
      direction[i] = call.nesterov ? keep * sum + g : sum;
    }
  });
}

void execute(Context& context, const MuonNormalize& call) {
  const auto* sums = call.sums.data<double>();
  double sum = 0;
  for (std::int64_t i = 0; i < call.sums.elements(); ++i) sum += sums[i];
  const auto factor = static_cast<float>(1 / std::max(std::sqrt(sum), call.eps));
  const auto* direction = call.direction.data<float>();
  muon_blocks(context, call.x.elements(), [&](std::int64_t begin, std::int64_t end, float* scaled) {
    for (std::int64_t i = begin; i < end; ++i) scaled[i - begin] = direction[i] * factor;
    context.vector.convert(element(call.x, begin), type_of(call.x.dtype()), scaled, Type::kF32,
                           end - begin);
  });
}

void execute(Context& context, const MuonUpdate& call) {
  const auto* scalars = call.scalars.data<float>();
  if (scalars[kApply] == 0) return;
  const double rate = scalars[kLearningRate];
  const auto keep = static_cast<float>(1 - rate * scalars[kWeightDecay] * call.decay_multiplier);
  const auto step = static_cast<float>(rate * call.lr_multiplier);
  auto* main = call.main.data<float>();
  muon_blocks(context, call.main.elements(),
              [&](std::int64_t begin, std::int64_t end, float* direction) {
                context.vector.convert(direction, Type::kF32, element(call.direction, begin),
                                       type_of(call.direction.dtype()), end - begin);
                for (std::int64_t i = begin; i < end; ++i) {
                  main[i] = main[i] * keep - step * direction[i - begin];
                }
                if (!call.copy.defined()) return;
                context.vector.convert(element(call.copy, begin), type_of(call.copy.dtype()),
                                       main + begin, Type::kF32, end - begin);
              });
}

}  // namespace piton::cpu
