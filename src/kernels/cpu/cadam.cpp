// CAdam's maxima of rows and update, a row or several at a time. The momentum of a row passes
// through blocks of floats that stay in the first-level cache.
#include "kernels/cadam.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kCadamBlock = 2048;

// The constants of the new momentum.
struct CadamMomentum {
  const float* gradient;
  float gradient_scale;
  float beta;
  float rest;

  // m of element i, from its stored momentum.
  float operator()(float stored, float scale, std::int64_t i) const {
    return beta * (stored * scale) + rest * (gradient[i] * gradient_scale);
  }
};

template <typename Call>
CadamMomentum momentum_of(const Call& call) {
  return {.gradient = call.gradient.template data<float>(),
          .gradient_scale = call.scalars.template data<float>()[kGradientScale],
          .beta = static_cast<float>(call.beta),
          .rest = static_cast<float>(1 - call.beta)};
}

// Calls body(row, begin, end, stored) for blocks [begin, end) of elements of one row each, in order
// within a row. stored [end - begin]: their momentum as floats, in memory of the thread.
template <typename Call, typename Body>
void cadam_blocks(CpuContext& context, const Call& call, const Body& body) {
  const std::int64_t n = call.gradient.elements();
  const std::int64_t grain = grain_of(call.columns * 4, 256 << 10);
  context.ranges(call.scales.elements(), grain, [&](std::int64_t first, std::int64_t last) {
    auto* stored = reinterpret_cast<float*>(context.scratch.own(kCadamBlock * 4));
    for (std::int64_t row = first; row < last; ++row) {
      const SpanRow span = span_row(row, n, call.columns, call.first_column);
      for (std::int64_t at = span.begin; at < span.end; at += kCadamBlock) {
        const std::int64_t end = std::min(at + kCadamBlock, span.end);
        context.vector.convert(stored, Type::kF32, call.momentum.raw() + at * 2, Type::kF16,
                               end - at);
        body(row, at, end, stored);
      }
    }
  });
}

}  // namespace

void execute(CpuContext& context, const CadamMaxima& call) {
  auto* maxima = call.maxima.data<float>();
  std::fill_n(maxima, call.maxima.elements(), 0.0F);
  if (call.scalars.data<float>()[kApply] == 0) return;
  const CadamMomentum momentum = momentum_of(call);
  const auto* scales = call.scales.data<float>();
  cadam_blocks(context, call,
               [&](std::int64_t row, std::int64_t begin, std::int64_t end, const float* stored) {
                 float most = maxima[row];
                 for (std::int64_t i = begin; i < end; ++i) {
                   most = std::max(most, std::fabs(momentum(stored[i - begin], scales[row], i)));
                 }
                 maxima[row] = most;
               });
}

void execute(CpuContext& context, const CadamUpdate& call) {
  const auto* scalars = call.scalars.data<float>();
  if (scalars[kApply] == 0) return;
  const float rate = scalars[kLearningRate];
  const auto keep =
      static_cast<float>(1 - double{rate} * scalars[kWeightDecay] * call.decay_multiplier);
  const auto largest = static_cast<float>(kCadamLargest);
  const CadamMomentum momentum = momentum_of(call);
  auto* main = call.main.data<float>();
  const auto* maxima = call.maxima.data<float>();
  auto* scales = call.scales.data<float>();
  const std::int64_t n = call.main.elements();
  const auto new_scale = [&](std::int64_t row) {
    return maxima[row] / largest + static_cast<float>(kCadamEps);
  };
  cadam_blocks(
      context, call, [&](std::int64_t row, std::int64_t begin, std::int64_t end, float* stored) {
        const float scale = new_scale(row);
        const float inverse = 1 / scale;
        for (std::int64_t i = begin; i < end; ++i) {
          const float m = momentum(stored[i - begin], scales[row], i);
          stored[i - begin] = std::clamp(m * inverse, -largest, largest);
          const float sign = static_cast<float>(m > 0) - static_cast<float>(m < 0);
          main[i] = main[i] * keep - rate * sign;
        }
        context.vector.convert(call.momentum.raw() + begin * 2, Type::kF16, stored, Type::kF32,
                               end - begin);
        if (call.copy.defined()) {
          const std::int64_t width = size_bytes(call.copy.dtype());
          context.vector.convert(call.copy.raw() + begin * width, type_of(call.copy.dtype()),
                                 main + begin, Type::kF32, end - begin);
        }
        if (end == span_row(row, n, call.columns, call.first_column).end) {
          scales[row] = scale;  // the row's last block
        }
      });
}

}  // namespace piton::cpu
