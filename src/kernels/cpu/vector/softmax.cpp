// The steps of attention between its products: scores to weights, weights to score gradients.
#include "kernels/cpu/vector/attention.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {
namespace {

// Scaled, biased and masked scores of columns i .. i + kLanes - 1 of one row.
struct Row {
  const ScoreArguments& a;
  const float* scores;
  I low;
  I high;
  I segment;
  F bias;  // slope * (position of column 0 - position of the row)

  PITON_INLINE Row of(const ScoreArguments& a, int row) {
    const auto clamp = [](std::int64_t x) {
      return static_cast<std::int32_t>(x < 0 ? 0 : x > 0x40000000 ? 0x40000000 : x);
    };
    return {
        a,
        a.scores + row * a.stride,
        splat_i(clamp(a.low[row] - a.first_key)),
        splat_i(clamp(a.high[row] - a.first_key)),
        splat_i(a.query_segments != nullptr ? a.query_segments[row] : 0),
        splat(a.slope != 0 ? a.slope * static_cast<float>(a.first_key - a.positions[row]) : 0.0F)};
  }

  __attribute__((always_inline)) F at(int i) const {
    F s = load(scores + i) * a.scale;
    if (a.slope != 0) s += bias + splat(a.slope) * (lane_numbers() + static_cast<float>(i));
    if (a.masked) {
      const I column = lane_indices() + i;
      I visible = (column >= low) & (column < high);
      if (a.key_segments != nullptr) visible &= load_bits<I>(a.key_segments + i) == segment;
      s = visible ? s : splat(-__builtin_inff());
    }
    return s;
  }
};

}  // namespace

void softmax_step(const ScoreArguments& a, float* maxima, float* sums, float* out,
                  std::int64_t out_stride, int d) {
  const float lowest = -__builtin_inff();
  for (int r = 0; r < a.rows; ++r) {
    const Row row = Row::of(a, r);
    float* scores = a.scores + r * a.stride;
    F top = splat(lowest);
    for (int i = 0; i < a.columns; i += kLanes) {
      const F s = row.at(i);
      top = max(s, top);
      store(scores + i, s);
    }
    const float before = maxima[r];
    const float highest = max_lanes(top);
    const float now = highest > before ? highest : before;
    const float base = now == lowest ? 0.0F : now;
    F total = splat(0);
    for (int i = 0; i < a.columns; i += kLanes) {
      const F p = exp(load(scores + i) - base);
      total += p;
      store(scores + i, p);
    }
    const float factor = before == lowest ? 0.0F : exp(splat(before - base))[0];
    sums[r] = sums[r] * factor + sum_lanes(total);
    maxima[r] = now;
    if (factor != 1.0F) {
      float* y = out + r * out_stride;
      for (int i = 0; i < d; i += kLanes) store(y + i, load(y + i) * factor);
    }
  }
}

void softmax_again(const ScoreArguments& a, const float* lse) {
  const float lowest = -__builtin_inff();
  for (int r = 0; r < a.rows; ++r) {
    const Row row = Row::of(a, r);
    float* scores = a.scores + r * a.stride;
    const float base = lse[r];
    for (int i = 0; i < a.columns; i += kLanes) {
      const F p = base == lowest ? splat(0) : exp(row.at(i) - base);
      store(scores + i, p);
    }
  }
}

void score_gradient(float* dp, const float* p, std::int64_t stride, int rows, int columns,
                    const float* delta, float scale) {
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < columns; i += kLanes) {
      float* at = dp + r * stride + i;
      store(at, load(p + r * stride + i) * (load(at) - delta[r]) * scale);
    }
  }
}

}  // namespace piton::cpu::PITON_ISA
