// Convolution of channels, and the gated delta rule or that of a state space row by row.
//
// States are [keys, columns]: products with k and q then need no sums over lanes.
#include "kernels/cpu/vector/recurrent.h"

#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {
namespace {

// The sum of a row before its activation, of the vector at i.
template <typename Count>
PITON_INLINE F convolved(const ConvolutionArguments& a, std::int64_t row, std::int64_t first,
                         std::int64_t i, Count count) {
  F z = load(a.bias + i, count);
  for (std::int64_t j = first; j < a.width; ++j)
    z += load(a.weight + j * a.columns + i, count) * load(a.x + (row + j) * a.columns + i, count);
  return z;
}

// The first weight that a row uses.
PITON_INLINE std::int64_t first_weight(const ConvolutionArguments& a, std::int64_t row) {
  return a.width - a.reach[row];
}

}  // namespace

void convolution_forward(const ConvolutionArguments& a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const std::int64_t first = first_weight(a, row);
    for_vectors(
        a.columns, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          const F z = convolved(a, row, first, i, count);
          store(a.y + row * a.columns + i, a.silu ? z * sigmoid(z).s : z, count);
        });
  }
}

void convolution_backward(const ConvolutionArguments& a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const std::int64_t first = first_weight(a, row);
    for_vectors(
        a.columns, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          const F z = convolved(a, row, first, i, count);
          F dz = load(a.dy + row * a.columns + i, count);
          if (a.silu) {
            const Sigmoid s = sigmoid(z);
            dz *= s.s + z * s.s * s.rest;
          }
          store(a.dbias + i, load(a.dbias + i, count) + dz, count);
          for (std::int64_t j = first; j < a.width; ++j) {
            const std::int64_t at = (row + j) * a.columns + i;
            const std::int64_t of_weight = j * a.columns + i;
            store(a.dx + at, load(a.dx + at, count) + load(a.weight + of_weight, count) * dz,
                  count);
            store(a.dweight + of_weight,
                  load(a.dweight + of_weight, count) + load(a.x + at, count) * dz, count);
          }
        });
  }
}

void delta_forward(const DeltaArguments& a) {
  constexpr int kColumns = kDeltaVectors * kLanes;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const float* k = a.k + row * a.keys;
    const float* q = a.q + row * a.keys;
    const float keep = a.keep[row];
    F d[kDeltaVectors];
    for (F& one : d) one = splat(0);
    // Nothing of a state is read whose product with 0 would not be 0.
    if (a.corrects && keep != 0) {
      for (std::int64_t i = 0; i < a.keys; ++i) {
        for (int j = 0; j < kDeltaVectors; ++j)
          d[j] = add_product(d[j], load(a.state + i * kColumns + j * kLanes), splat(k[i]));
      }
    }
    F out[kDeltaVectors];
    for (int j = 0; j < kDeltaVectors; ++j) {
      const F v = load(a.v + row * kColumns + j * kLanes);
      d[j] = (a.corrects ? v - d[j] * keep : v) * a.strength[row];
      out[j] = a.corrects ? splat(0) : v * a.skip;
    }
    for (std::int64_t i = 0; i < a.keys; ++i) {
      for (int j = 0; j < kDeltaVectors; ++j) {
        float* state = a.state + i * kColumns + j * kLanes;
        const F kept = keep != 0 ? load(state) * keep : splat(0);
        const F changed = add_product(kept, d[j], splat(k[i]));
        store(state, changed);
        out[j] = add_product(out[j], changed, splat(q[i]));
      }
    }
    for (int j = 0; j < kDeltaVectors; ++j) store(a.out + row * kColumns + j * kLanes, out[j]);
  }
}

}  // namespace piton::cpu::PITON_ISA
