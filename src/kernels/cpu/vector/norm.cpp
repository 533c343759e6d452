// Layer norm and root-mean-square norm, forward and backward, row by row.
#include "kernels/cpu/vector/rows.h"
#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {
namespace {

// X: the type of x and of its gradient; T: of the rest.
template <typename T, typename X>
void forward(const NormArguments& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t h = a.columns;
  const T* gain = static_cast<const T*>(a.gain);
  const T* bias = static_cast<const T*>(a.bias);
  const float inverse = 1.0F / static_cast<float>(a.width);
  for (std::int64_t row = begin; row < end; ++row) {
    const X* x = static_cast<const X*>(a.x.data) + row * a.x.stride;
    T* y = static_cast<T*>(a.y.data) + row * a.y.stride;
    float mean = 0;
    if (a.mean != nullptr) {
      F sum = splat(0);
      for_vectors(
          h, [&](std::int64_t i, auto count)
                 __attribute__((always_inline)) { sum += load(x + i, count); });
      mean = sum_lanes(sum) * inverse;
      a.mean[row] = mean;
    }
    F squares = splat(0);
    for_vectors(
        h, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          const F centered = first_lanes(load(x + i, count) - mean, count, 0);
          squares += centered * centered;
        });
    const float sum = a.sums != nullptr ? a.sums[row] : sum_lanes(squares);
    const float r = 1.0F / __builtin_sqrtf(sum * inverse + a.eps);
    a.rstd[row] = r;
    for_vectors(
        h, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          F value = (load(x + i, count) - mean) * r * (load(gain + i, count) + a.gain_offset);
          if (bias != nullptr) value += load(bias + i, count);
          store(y + i, value, count);
        });
  }
}

// With e = x^ = (x - mean) r and w = gain * dy:  dx = r (w - mean(w) - e mean(w e)); an RMS norm
// has no mean(w).
template <typename T, typename X>
void backward(const NormArguments& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t h = a.columns;
  const T* gain = static_cast<const T*>(a.gain);
  const float inverse = 1.0F / static_cast<float>(a.width);
  for (std::int64_t row = begin; row < end; ++row) {
    const X* x = static_cast<const X*>(a.x.data) + row * a.x.stride;
    const T* dy = static_cast<const T*>(a.dy.data) + row * a.dy.stride;
    const X* dresidual = static_cast<const X*>(a.dresidual.data) + row * a.dresidual.stride;
    X* dx = static_cast<X*>(a.y.data) + row * a.y.stride;
    const float mean = a.mean != nullptr ? a.mean[row] : 0;
    const float r = a.rstd[row];
    F sum_w = splat(0), sum_we = splat(0);
    for_vectors(
        h, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          const F g = load(dy + i, count);
          const F e = (load(x + i, count) - mean) * r;
          const F w = g * (load(gain + i, count) + a.gain_offset);
          sum_w += w;
          sum_we += w * e;
          if (a.dgain != nullptr) store(a.dgain + i, load(a.dgain + i, count) + g * e, count);
          if (a.dbias != nullptr) store(a.dbias + i, load(a.dbias + i, count) + g, count);
        });
    const float mean_w = a.mean != nullptr ? sum_lanes(sum_w) * inverse : 0;
    const float mean_we = (a.sums != nullptr ? a.sums[row] : sum_lanes(sum_we)) * inverse;
    for_vectors(
        h, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          const F e = (load(x + i, count) - mean) * r;
          const F w = load(dy + i, count) * (load(gain + i, count) + a.gain_offset);
          F value = (w - mean_w - e * mean_we) * r;
          if (a.dresidual.data != nullptr) value += load(dresidual + i, count);
          store(dx + i, value, count);
        });
  }
}

}  // namespace

void norm_forward(const NormArguments& a, std::int64_t begin, std::int64_t end) {
  with_type(a.y.type, [&](auto tag) {
    using T = decltype(tag);
    if (a.x.type == a.y.type) return forward<T, T>(a, begin, end);
    forward<T, float>(a, begin, end);
  });
}

void norm_backward(const NormArguments& a, std::int64_t begin, std::int64_t end) {
  with_type(a.dy.type, [&](auto tag) {
    using T = decltype(tag);
    if (a.x.type == a.dy.type) return backward<T, T>(a, begin, end);
    backward<T, float>(a, begin, end);
  });
}

}  // namespace piton::cpu::PITON_ISA
